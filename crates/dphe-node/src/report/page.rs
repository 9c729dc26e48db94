//! A page in one file: text, tables and plots, clear in light and dark, on paper and on a phone.

use core::fmt::Write as _;

/// A page being written.
pub struct Page {
    title: String,
    body: String,
}

/// A small grey picture that is drawn on the page, with what is said of it.
pub struct Tile<'a> {
    /// What is said of it, the first line strong.
    pub lines: &'a [String],
    /// Pixels in a row.
    pub width: usize,
    /// Row after row, 0 is black.
    pub grey: &'a [u8],
}

/// A picture that lies beside the page, with what is said of it.
pub struct Picture {
    /// Its path, seen from the page.
    pub address: String,
    /// What it is called.
    pub name: String,
    /// What is said of it.
    pub lines: Vec<String>,
}

pub(crate) const STYLE: &str = "
:root { color-scheme: light dark; --back: #ffffff; --ink: #1a1d21; --soft: #5c6670; --grid: #d9dee3; --card: #f5f7f9;
  --line-1: #0b62c4; --line-2: #b3261e; --line-3: #1a7f37; --line-4: #8a4baf; --line-5: #9a6700; --line-6: #57606a; }
@media (prefers-color-scheme: dark) { :root { --back: #14171a; --ink: #e6e9ec; --soft: #a3adb7; --grid: #343b42;
  --card: #1d2226; --line-1: #6cb0ff; --line-2: #ff8a80; --line-3: #63d08a; --line-4: #d0a2f0; --line-5: #e3b341;
  --line-6: #a3adb7; } }
body { background: var(--back); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; margin: 0 auto;
  max-width: 70rem; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.6rem; line-height: 1.25; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
p { max-width: 44rem; } .soft { color: var(--soft); }
.plots { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); }
figure { background: var(--card); border-radius: 8px; margin: 0; padding: .75rem; }
figcaption { font-weight: 600; padding: 0 .25rem .25rem; } figure svg { display: block; height: auto; width: 100%; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--grid); padding: .3rem .8rem .3rem 0; text-align: right; white-space: nowrap; }
h3 { font-size: 1rem; margin: 1.5rem 0 .3rem; } .prose td { text-align: left; vertical-align: top; white-space: normal; }
th.text, td.text { text-align: left; } th { color: var(--soft); font-weight: 500; }
.sheet { display: grid; gap: .75rem; grid-template-columns: repeat(auto-fill, minmax(11rem, 1fr)); }
.sheet img { aspect-ratio: 4 / 3; display: block; object-fit: contain; width: 100%; }
.sheet figcaption { font-weight: 400; overflow-wrap: anywhere; } .sheet b { display: block; }
pre { background: var(--card); border-radius: 8px; overflow-x: auto; padding: .75rem; }
";

impl Page {
    /// A page with this title.
    pub fn new(title: &str) -> Self {
        let mut page = Self { title: title.to_owned(), body: String::new() };
        page.element("h1", title);
        page
    }

    /// A heading.
    pub fn heading(&mut self, text: &str) -> &mut Self {
        self.element("h2", text)
    }

    /// A heading below a heading.
    pub fn subheading(&mut self, text: &str) -> &mut Self {
        self.element("h3", text)
    }

    /// A table of sentences: its cells are as high as they must be.
    pub fn prose_table(&mut self, head: &[&str], rows: &[Vec<String>]) -> &mut Self {
        let _ = writeln!(self.body, "<div class=\"scroll prose\">{}</div>", table(head, rows));
        self
    }

    /// Small pictures side by side.
    pub fn tiles(&mut self, tiles: &[Tile<'_>]) -> &mut Self {
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

    /// A paragraph.
    pub fn paragraph(&mut self, text: &str) -> &mut Self {
        self.element("p", text)
    }

    /// A table; the first column is text, the others are numbers.
    pub fn table(&mut self, head: &[&str], rows: &[Vec<String>]) -> &mut Self {
        self.columns(head, rows, |column| column == 0)
    }

    /// A table of which some columns are words.
    pub fn columns(
        &mut self,
        head: &[&str],
        rows: &[Vec<String>],
        is_text: impl Fn(usize) -> bool,
    ) -> &mut Self {
        let _ = writeln!(self.body, "<div class=\"scroll\">{}</div>", columns(head, rows, is_text));
        self
    }

    /// A square of counts as a picture: the darker, the more of its row. Names and numbers show where one points.
    pub fn matrix(&mut self, names: &[&str], rows: &[Vec<u64>]) -> &mut Self {
        let count = names.len();
        let _ = write!(
            self.body,
            "<figure><svg role=\"img\" aria-label=\"confusion matrix\" viewBox=\"0 0 {count} {count}\" \
             style=\"max-width: 40rem\" shape-rendering=\"crispEdges\">"
        );
        for (truth, row) in rows.iter().enumerate() {
            let all = row.iter().sum::<u64>().max(1) as f64;
            for (said, &times) in row.iter().enumerate().filter(|&(_, &times)| times > 0) {
                let colour = if said == truth { "var(--line-1)" } else { "var(--line-2)" };
                let title = escaped(&format!("{}: {times} said to be {}", names[truth], names[said]));
                let _ = write!(
                    self.body,
                    "<rect x=\"{said}\" y=\"{truth}\" width=\"1\" height=\"1\" fill=\"{colour}\" \
                     fill-opacity=\"{:.2}\"><title>{title}</title></rect>",
                    0.1 + 0.9 * times as f64 / all
                );
            }
        }
        self.body.push_str(
            "</svg><figcaption>Rows: what was there; columns: what was said; the diagonal is right</figcaption></figure>\n",
        );
        self
    }

    /// Pictures side by side, each with its lines, the first of them strong.
    pub fn pictures(&mut self, pictures: &[Picture]) -> &mut Self {
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

    /// Plots side by side, each with its title.
    pub fn plots(&mut self, plots: &[(&str, Option<String>)]) -> &mut Self {
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

    /// The whole page.
    pub fn html(&self) -> String {
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

/// A table; the first column is text, the others are numbers.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    columns(head, rows, |column| column == 0)
}

fn columns(head: &[&str], rows: &[Vec<String>], is_text: impl Fn(usize) -> bool) -> String {
    let mut out = String::from("<table><thead><tr>");
    let cell = |out: &mut String, tag: &str, column: usize, text: &str| {
        let class = if is_text(column) { " class=\"text\"" } else { "" };
        let _ = write!(out, "<{tag}{class}>{}</{tag}>", escaped(text));
    };
    head.iter().enumerate().for_each(|(i, text)| cell(&mut out, "th", i, text));
    out.push_str("</tr></thead><tbody>\n");
    for row in rows {
        out.push_str("<tr>");
        row.iter().enumerate().for_each(|(i, text)| cell(&mut out, "td", i, text));
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table>");
    out
}

/// A path as an address: what has a meaning there is written by its number.
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

/// Text that is text wherever it stands in a page.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn photos_have_addresses_that_work() {
        let mut page = Page::new("sheet");
        let picture =
            Picture {
                address: "a b/ü#1.jpg".into(), name: "a b/ü#1.jpg".into(), lines: vec!["cat".into()]
            };
        page.pictures(&[picture]);
        assert!(page.html().contains("src=\"a%20b/%C3%BC%231.jpg\" alt=\"a b/ü#1.jpg\""), "{}", page.html());
    }

    #[test]
    fn text_stays_text() {
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
