//! Text and tables in a terminal of 80 columns.

use std::io::IsTerminal as _;
use std::time::Duration;

use dphe_service::chart::Unit;
use indicatif::ProgressBar;

/// The width that output is wrapped to. Wider terminals show the same, so that output looks alike everywhere.
pub(crate) const WIDTH: usize = 80;
/// The space between two columns.
const GAP: usize = 2;
/// A text column is not made narrower than this to save a table from being divided.
const NARROWEST_TEXT: usize = 16;

/// Prints a paragraph, wrapped by words. Line breaks in the text are kept.
pub(crate) fn print_text(text: &str) {
    println!("{}", wrapped(text, WIDTH).join("\n"));
}

/// Prints a name and a text. Further lines of the text begin below its first one.
pub(crate) fn print_entry(name: &str, text: &str) {
    const NAME: usize = 13;
    let lines = wrapped(text, WIDTH - NAME);
    for (i, line) in lines.iter().enumerate() {
        println!("{:<NAME$}{line}", if i == 0 { name } else { "" });
    }
}

/// Prints a table. The first column is text, the others are numbers.
pub(crate) fn print_rows(head: &[&str], rows: &[Vec<String>]) {
    print_columns(head, rows, |column| column == 0);
}

/// Prints a table. Columns that are not text are aligned to the right. Heads and texts are wrapped by words where the
/// table is too wide, and a table that is still too wide is divided: the first column then comes again.
pub(crate) fn print_columns(head: &[&str], rows: &[Vec<String>], is_text: impl Fn(usize) -> bool) {
    table(head, rows, is_text).iter().for_each(|line| println!("{line}"));
}

/// Formats a fraction as a percentage, or as `-` if there is none.
pub(crate) fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| Unit::Percent.write(share))
}

/// Writes a number with the word that it counts.
pub(crate) fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Shows on standard error, if it is a terminal, what the program does and for how long.
pub(crate) fn spinner(note: &str) -> ProgressBar {
    let spinner = ProgressBar::new_spinner();
    if let Ok(style) = indicatif::ProgressStyle::with_template("{spinner} {wide_msg} {elapsed}") {
        spinner.set_style(style);
    }
    spinner.set_message(note.to_owned());
    spinner.enable_steady_tick(Duration::from_millis(120));
    spinner
}

/// How good a word is that a check ends with.
#[derive(Clone, Copy)]
pub(crate) enum Tone {
    Good,
    Doubtful,
    Bad,
}

/// Returns whether standard output shows colours: it is a terminal, and `NO_COLOR` is not set.
pub(crate) fn has_colour() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Returns a word in green, yellow or red if standard output is a terminal and `NO_COLOR` is not set.
pub(crate) fn coloured(word: &str, tone: Tone) -> String {
    if !has_colour() {
        return word.to_owned();
    }
    let code = match tone {
        Tone::Good => 32,
        Tone::Doubtful => 33,
        Tone::Bad => 31,
    };
    format!("\u{1b}[{code}m{word}\u{1b}[0m")
}

/// Divides a text into lines of at most `width` characters. A longer word has a line of its own.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for paragraph in text.split('\n') {
        let mut line: Option<String> = None;
        for word in paragraph.split(' ') {
            line = Some(match line {
                None => word.to_owned(),
                Some(full)
                    if full.chars().count() + 1 + word.chars().count() > width && !full.trim().is_empty() =>
                {
                    lines.push(full);
                    word.to_owned()
                }
                Some(line) => format!("{line} {word}"),
            });
        }
        lines.extend(line);
    }
    lines
}

fn longest(lines: &[String]) -> usize {
    lines.iter().map(|line| line.chars().count()).max().unwrap_or(0)
}

fn table(head: &[&str], rows: &[Vec<String>], is_text: impl Fn(usize) -> bool) -> Vec<String> {
    let columns: Vec<usize> = (0..head.len()).collect();
    let cells = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let natural = |column: usize| cells(column).max(longest(&wrapped(head[column], WIDTH)));
    let mut widths: Vec<usize> = columns.iter().map(|&column| natural(column)).collect();
    let total = |widths: &[usize]| widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
    if total(&widths) > WIDTH {
        // the heads on several lines
        for &column in &columns {
            widths[column] = cells(column).max(longest(&wrapped(head[column], 1)));
        }
    }
    while total(&widths) > WIDTH {
        let widest = columns.iter().copied().filter(|&column| is_text(column)).max_by_key(|&c| widths[c]);
        match widest.filter(|&column| widths[column] > NARROWEST_TEXT) {
            Some(column) => widths[column] -= 1,
            None => break,
        }
    }
    let mut out = Vec::new();
    for (number, block) in blocks(&widths).iter().enumerate() {
        if number > 0 {
            out.push(String::new());
        }
        let mut line = |cells: &dyn Fn(usize) -> String| {
            let cells: Vec<Vec<String>> =
                block.iter().map(|&column| wrapped(&cells(column), widths[column])).collect();
            for at in 0..cells.iter().map(Vec::len).max().unwrap_or(0) {
                let parts = cells.iter().zip(block).map(|(lines, &column)| {
                    let (text, width) = (lines.get(at).map_or("", String::as_str), widths[column]);
                    if is_text(column) { format!("{text:<width$}") } else { format!("{text:>width$}") }
                });
                out.push(parts.collect::<Vec<_>>().join(&" ".repeat(GAP)).trim_end().to_owned());
            }
        };
        line(&|column| head[column].to_owned());
        rows.iter().for_each(|row| line(&|column| row[column].clone()));
    }
    out
}

/// Distributes columns to blocks that fit. Each block begins with the first column.
fn blocks(widths: &[usize]) -> Vec<Vec<usize>> {
    let mut blocks: Vec<Vec<usize>> = vec![Vec::new()];
    let mut width = 0;
    for column in 0..widths.len() {
        let Some(block) = blocks.last_mut() else { break };
        if block.len() > 1 && width + GAP + widths[column] > WIDTH {
            blocks.push(vec![0, column]);
            width = widths[0] + GAP + widths[column];
        } else {
            width += widths[column] + if block.is_empty() { 0 } else { GAP };
            block.push(column);
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(rows: &[&[&str]]) -> Vec<Vec<String>> {
        rows.iter().map(|row| row.iter().map(|&cell| cell.to_owned()).collect()).collect()
    }

    #[test]
    fn text_is_wrapped_by_words_and_long_words_stay_whole() {
        assert_eq!(wrapped("a round of five users", 10), ["a round of", "five users"]);
        assert_eq!(wrapped("see /a/very/long/path now", 8), ["see", "/a/very/long/path", "now"]);
        assert_eq!(wrapped("one\n\n  two", 80), ["one", "", "  two"]);
    }

    #[test]
    fn small_tables_have_one_line_per_row() {
        let rows = cells(&[&["one", "1"], &["three", "300"]]);
        assert_eq!(
            table(&["name", "size"], &rows, |i| i == 0),
            ["name   size", "one       1", "three   300"]
        );
    }

    #[test]
    fn wide_tables_are_wrapped_or_divided_and_lose_nothing() {
        // heads of several words
        let (head, row) = ([&"a head of many words"; 6].map(|head| *head), ["1234567"; 6]);
        let lines = table(&head, &cells(&[&row]), |_| false);
        assert!(lines.len() > 2 && lines.last().unwrap().matches("1234567").count() == 6, "{lines:#?}");
        // a long text
        let text = "a sentence that says what was measured, and that is longer than a line of a terminal has";
        let lines = table(&["claim", "seen"], &cells(&[&["holds", text]]), |_| true);
        assert_eq!(
            lines.join(" ").split_whitespace().skip(2).collect::<Vec<_>>().join(" "),
            format!("holds {text}")
        );
        // many numbers
        let (head, row) = (["head"; 12], ["12345678.9"; 12]);
        let many = table(&head, &cells(&[&row]), |_| false);
        assert_eq!(many.join(" ").matches("12345678.9").count(), 14, "the first column comes again twice");
        for lines in [lines, many] {
            assert!(lines.iter().all(|line| line.chars().count() <= WIDTH), "{lines:#?}");
        }
    }
}
