//! Tables in a terminal.

use dphe_service::chart::Unit;

/// Prints a table. The first column is text, the others are numbers.
pub(crate) fn print_rows(head: &[&str], rows: &[Vec<String>]) {
    print_columns(head, rows, |column| column == 0);
}

/// Prints a table. Columns that are not text are aligned to the right.
pub(crate) fn print_columns(head: &[&str], rows: &[Vec<String>], is_text: impl Fn(usize) -> bool) {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let cells = cells.zip(&widths).enumerate();
        let cells = cells.map(|(i, (cell, &width))| match is_text(i) {
            true => format!("{cell:<width$}"),
            false => format!("{cell:>width$}"),
        });
        println!("{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    };
    line(&mut head.iter().copied());
    rows.iter().for_each(|row| line(&mut row.iter().map(String::as_str)));
}

/// Formats a fraction as a percentage, or as `-` if there is none.
pub(crate) fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| Unit::Percent.write(share))
}
