//! Reports as HTML pages in one file: text, tables, plots and images, with a light and a dark theme.

use core::fmt::Write as _;

use dphe_service::html::{self, STYLE, escaped};

/// A page that is being written.
pub(crate) struct Page {
    title: String,
    body: String,
}

/// A small greyscale image that is drawn on the page, with a caption.
pub(crate) struct Tile<'a> {
    /// The lines of the caption, the first one in bold.
    pub(crate) lines: &'a [String],
    /// The number of pixels per row.
    pub(crate) width: usize,
    /// The pixels, row by row. 0 is black.
    pub(crate) grey: &'a [u8],
}

/// An image file that the page refers to, with a caption.
pub(crate) struct Picture {
    /// The path relative to the page.
    pub(crate) address: String,
    /// The name, also the text for screen readers.
    pub(crate) name: String,
    /// The lines of the caption, the first one in bold.
    pub(crate) lines: Vec<String>,
}

impl Page {
    /// Creates a page with this title.
    pub(crate) fn new(title: &str) -> Self {
        let mut page = Self { title: title.to_owned(), body: String::new() };
        page.element("h1", title);
        page
    }

    /// Adds a heading.
    pub(crate) fn heading(&mut self, text: &str) -> &mut Self {
        self.element("h2", text)
    }

    /// Adds a heading of the second level.
    pub(crate) fn subheading(&mut self, text: &str) -> &mut Self {
        self.element("h3", text)
    }

    /// Adds a table of sentences, whose cells may wrap.
    pub(crate) fn prose_table(&mut self, head: &[&str], rows: &[Vec<String>]) -> &mut Self {
        let _ = writeln!(self.body, "<div class=\"scroll prose\">{}</div>", html::table(head, rows));
        self
    }

    /// Adds small greyscale images side by side.
    pub(crate) fn tiles(&mut self, tiles: &[Tile<'_>]) -> &mut Self {
        self.body.push_str("<div class=\"sheet\">\n");
        for Tile { lines, width, grey } in tiles {
            let (width, height) = ((*width).max(1), grey.len().div_ceil((*width).max(1)));
            let name = escaped(&lines.join(", "));
            let _ = write!(
                self.body,
                "<figure><svg role=\"img\" aria-label=\"{name}\" viewBox=\"0 0 {width} {height}\" \
                 shape-rendering=\"crispEdges\">"
            );
            for (i, value) in grey.iter().enumerate() {
                let (x, y) = (i % width, i / width);
                let _ = write!(
                    self.body,
                    "<rect x=\"{x}\" y=\"{y}\" width=\"1\" height=\"1\" fill=\"#{value:02x}{value:02x}{value:02x}\"/>"
                );
            }
            self.body.push_str("</svg><figcaption>");
            for (i, line) in lines.iter().enumerate() {
                let tag = if i == 0 { "b" } else { "div" };
                let _ = write!(self.body, "<{tag}>{}</{tag}>", escaped(line));
            }
            self.body.push_str("</figcaption></figure>\n");
        }
        self.body.push_str("</div>\n");
        self
    }

    /// Adds a paragraph.
    pub(crate) fn paragraph(&mut self, text: &str) -> &mut Self {
        self.element("p", text)
    }

    /// Adds a table. The first column is text, the others are numbers.
    pub(crate) fn table(&mut self, head: &[&str], rows: &[Vec<String>]) -> &mut Self {
        self.columns(head, rows, |column| column == 0)
    }

    /// Adds a table. Columns that are not text are aligned to the right.
    pub(crate) fn columns(
        &mut self,
        head: &[&str],
        rows: &[Vec<String>],
        is_text: impl Fn(usize) -> bool,
    ) -> &mut Self {
        let _ = writeln!(self.body, "<div class=\"scroll\">{}</div>", html::table_with(head, rows, is_text));
        self
    }

    /// Adds a confusion matrix as an image. A darker cell holds a larger share of its row; pointing at a cell shows the
    /// names and the count.
    pub(crate) fn matrix(&mut self, names: &[&str], rows: &[Vec<u64>]) -> &mut Self {
        let count = names.len();
        let _ = write!(
            self.body,
            "<figure><svg role=\"img\" aria-label=\"confusion matrix\" viewBox=\"0 0 {count} {count}\" \
             style=\"max-width: 40rem\" shape-rendering=\"crispEdges\">"
        );
        for (truth, row) in rows.iter().enumerate() {
            let all = row.iter().sum::<u64>().max(1) as f64;
            for (predicted, &times) in row.iter().enumerate().filter(|&(_, &times)| times > 0) {
                let colour = if predicted == truth { "var(--line-1)" } else { "var(--line-2)" };
                let title = escaped(&format!("{}: {times} predicted as {}", names[truth], names[predicted]));
                let _ = write!(
                    self.body,
                    "<rect x=\"{predicted}\" y=\"{truth}\" width=\"1\" height=\"1\" fill=\"{colour}\" \
                     fill-opacity=\"{:.2}\"><title>{title}</title></rect>",
                    0.1 + 0.9 * times as f64 / all
                );
            }
        }
        self.body.push_str(
            "</svg><figcaption>Rows are true classes, columns are predicted classes. The diagonal is correct.</figcaption></figure>\n",
        );
        self
    }

    /// Adds images side by side, each with its caption.
    pub(crate) fn pictures(&mut self, pictures: &[Picture]) -> &mut Self {
        self.body.push_str("<div class=\"sheet\">\n");
        for Picture { address, name, lines } in pictures {
            let (address, name) = (escaped(&encoded(address)), escaped(name));
            let _ = write!(
                self.body,
                "<figure><img loading=\"lazy\" src=\"{address}\" alt=\"{name}\"><figcaption>"
            );
            for (i, line) in lines.iter().enumerate() {
                let tag = if i == 0 { "b" } else { "div" };
                let _ = write!(self.body, "<{tag}>{}</{tag}>", escaped(line));
            }
            let _ = writeln!(self.body, "<span class=\"soft\">{name}</span></figcaption></figure>");
        }
        self.body.push_str("</div>\n");
        self
    }

    /// Adds plots side by side, each with its title. Plots without data are left out.
    pub(crate) fn plots(&mut self, plots: &[(&str, Option<String>)]) -> &mut Self {
        self.body.push_str("<div class=\"plots\">\n");
        for (title, svg) in plots {
            let Some(svg) = svg else { continue };
            let title = escaped(title);
            // writing to a string does not fail
            let _ = writeln!(self.body, "<figure><figcaption>{title}</figcaption>{svg}</figure>");
        }
        self.body.push_str("</div>\n");
        self
    }

    /// Returns the page as HTML.
    pub(crate) fn html(&self) -> String {
        let title = escaped(&self.title);
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{}</body>\n</html>\n",
            self.body
        )
    }

    fn element(&mut self, tag: &str, text: &str) -> &mut Self {
        let _ = writeln!(self.body, "<{tag}>{}</{tag}>", escaped(text));
        self
    }
}

/// Percent-encodes a path for use as an address.
fn encoded(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' | b'~' => {
                out.push(byte.into())
            }
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_paths_are_percent_encoded() {
        let mut page = Page::new("sheet");
        let picture =
            Picture {
                address: "a b/ü#1.jpg".into(), name: "a b/ü#1.jpg".into(), lines: vec!["cat".into()]
            };
        page.pictures(&[picture]);
        assert!(page.html().contains("src=\"a%20b/%C3%BC%231.jpg\" alt=\"a b/ü#1.jpg\""), "{}", page.html());
    }

    #[test]
    fn text_is_escaped() {
        let mut page = Page::new("a <script>alert('1')</script>");
        page.heading("h & h")
            .paragraph("1 < 2")
            .table(&["<i>"], &[vec!["\"q\"".into()]])
            .matrix(&["<b>"], &[vec![3]]);
        let html = page.html();
        assert!(!html.contains("<script") && !html.contains("<i>") && !html.contains("<b>"));
        assert!(
            html.contains("<h2>h &amp; h</h2>") && html.contains("<td class=\"text\">&quot;q&quot;</td>"),
            "{html}"
        );
    }
}
