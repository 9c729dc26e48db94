//! Reports as HTML pages in one file: text, tables, plots and images, with a light and a dark theme.

use core::fmt::Write as _;
use std::borrow::Cow;
use std::ffi::OsString;

use dphe_service::html::{self, STYLE, escaped};

use crate::png;
use crate::terminal::Tone;

/// A page that is being written.
pub(crate) struct Page {
    title: String,
    /// What comes before the contents.
    summary: String,
    body: String,
    headings: Vec<String>,
}

/// A page with at least this many headings lists them.
const CONTENTS_FROM: usize = 5;

/// A small greyscale image on the page, with a caption.
pub(crate) struct Tile<'a> {
    lines: Cow<'a, [String]>,
    width: usize,
    grey: Cow<'a, [u8]>,
}

impl<'a> Tile<'a> {
    /// Creates a tile. The first line of the caption is bold. The pixels are in rows, and 0 is black.
    pub(crate) fn new(lines: &'a [String], width: usize, grey: &'a [u8]) -> Self {
        Self { lines: lines.into(), width, grey: grey.into() }
    }
}

impl Tile<'static> {
    /// Creates a tile with a caption of one line.
    pub(crate) fn owned(name: &str, width: usize, grey: Vec<u8>) -> Self {
        Self { lines: vec![name.to_owned()].into(), width, grey: grey.into() }
    }
}

/// A row of a table of pictures.
pub(crate) struct PictureRow<'a> {
    pub(crate) name: String,
    /// The pictures in each cell.
    pub(crate) cells: Vec<Vec<Tile<'a>>>,
    /// A number in the last column.
    pub(crate) end: Option<String>,
}

/// A number that sums up what a page shows.
pub(crate) struct Figure {
    name: String,
    value: String,
    note: String,
    tone: Option<Tone>,
}

impl Figure {
    pub(crate) fn new(name: &str, value: String, note: &str) -> Self {
        Self { name: name.to_owned(), value, note: note.to_owned(), tone: None }
    }

    /// Gives the number a colour.
    pub(crate) fn toned(self, tone: Tone) -> Self {
        Self { tone: Some(tone), ..self }
    }
}

/// An image file that the page refers to, with a caption.
pub(crate) struct Picture {
    /// The path relative to the page, or a `data:` address.
    pub(crate) address: String,
    /// The name, also the text for screen readers.
    pub(crate) name: String,
    /// The lines of the caption, the first one in bold.
    pub(crate) lines: Vec<String>,
}

/// A confusion matrix of more classes has neither names nor counts, because they would be too small to read.
const MOST_NAMED: usize = 20;

impl Page {
    /// Creates a page with this title.
    pub(crate) fn new(title: &str) -> Self {
        let (summary, body) = (String::new(), String::new());
        Self { title: title.to_owned(), summary, body, headings: Vec::new() }
    }

    /// Adds a sentence or two below the title.
    pub(crate) fn lead(&mut self, text: &str) -> &mut Self {
        let _ = writeln!(self.summary, "<p class=\"lead\">{}</p>", escaped(text));
        self
    }

    /// Adds numbers that sum up the page, above its contents.
    pub(crate) fn figures(&mut self, figures: &[Figure]) -> &mut Self {
        self.summary.push_str("<div class=\"figures\">\n");
        for Figure { name, value, note, tone } in figures {
            let (name, value, note) = (escaped(name), escaped(value), escaped(note));
            let class = tone.map_or("", tone_class);
            let _ = writeln!(
                self.summary,
                "<div class=\"figure\"><div>{name}</div><b class=\"{class}\">{value}</b>\
                 <div class=\"soft\">{note}</div></div>"
            );
        }
        self.summary.push_str("</div>\n");
        self
    }

    /// Adds a heading.
    pub(crate) fn heading(&mut self, text: &str) -> &mut Self {
        self.headings.push(text.to_owned());
        let _ = writeln!(self.body, "<h2 id=\"s{}\">{}</h2>", self.headings.len(), escaped(text));
        self
    }

    /// Adds a table of verdicts: the cells of one column are coloured, and all others are sentences.
    pub(crate) fn verdict_table(
        &mut self,
        head: &[&str],
        rows: &[(Tone, Vec<String>)],
        column: usize,
    ) -> &mut Self {
        let plain: Vec<Vec<String>> = rows.iter().map(|(_, row)| row.clone()).collect();
        let mut table = html::table_with(head, &plain, |_| true);
        for (tone, row) in rows {
            // each replacement changes the first cell that has no colour yet
            let word = row.get(column).map(|word| escaped(word)).unwrap_or_default();
            let (class, from) = (tone_class(*tone), format!("<td class=\"text\">{word}</td>"));
            table = table.replacen(&from, &format!("<td class=\"text {class}\">{word}</td>"), 1);
        }
        let _ = writeln!(self.body, "<div class=\"scroll prose\">{table}</div>");
        self
    }

    /// Adds a table whose cells have pictures.
    pub(crate) fn picture_table(&mut self, head: &[&str], rows: &[PictureRow<'_>]) -> &mut Self {
        self.body.push_str("<div class=\"scroll\"><table class=\"gallery\"><thead><tr>");
        head.iter().for_each(|text| {
            let _ = write!(self.body, "<th class=\"text\">{}</th>", escaped(text));
        });
        self.body.push_str("</tr></thead><tbody>\n");
        for PictureRow { name, cells, end } in rows {
            let _ = write!(self.body, "<tr><th class=\"text\">{}</th>", escaped(name));
            for cell in cells {
                self.body.push_str("<td class=\"text\">");
                cell.iter().for_each(|tile| self.tile(tile));
                self.body.push_str("</td>");
            }
            if let Some(end) = end {
                let _ = write!(self.body, "<td class=\"text\">{}</td>", escaped(end));
            }
            self.body.push_str("</tr>\n");
        }
        self.body.push_str("</tbody></table></div>\n");
        self
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
        tiles.iter().for_each(|tile| self.tile(tile));
        self.body.push_str("</div>\n");
        self
    }

    fn tile(&mut self, Tile { lines, width, grey }: &Tile<'_>) {
        let (address, name) = (png::address(*width, grey), escaped(&lines.join(", ")));
        let _ = write!(self.body, "<figure><img class=\"pixels\" src=\"{address}\" alt=\"{name}\">");
        if !lines.is_empty() {
            self.body.push_str("<figcaption>");
            for (i, line) in lines.iter().enumerate() {
                let tag = if i == 0 { "b" } else { "div" };
                let _ = write!(self.body, "<{tag}>{}</{tag}>", escaped(line));
            }
            self.body.push_str("</figcaption>");
        }
        self.body.push_str("</figure>\n");
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
    /// names and the count. Names and counts are written if there is room.
    pub(crate) fn matrix(&mut self, names: &[&str], rows: &[Vec<u64>]) -> &mut Self {
        let count = names.len();
        let written = count <= MOST_NAMED;
        let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        // one unit is the side of a cell, and a character of a name is about a fifth as wide
        let left = if written { 0.22 * longest as f64 + 0.3 } else { 0.0 };
        let _ = write!(
            self.body,
            "<figure class=\"matrix\"><svg role=\"img\" aria-label=\"confusion matrix\" viewBox=\"0 0 {:.2} {:.2}\" \
             font-size=\"0.36\" fill=\"currentColor\">",
            left + count as f64,
            count as f64
        );
        for (truth, row) in rows.iter().enumerate() {
            let all = row.iter().sum::<u64>().max(1) as f64;
            let y = truth as f64;
            if written {
                let name = escaped(names[truth]);
                let _ = write!(
                    self.body,
                    "<text x=\"{:.2}\" y=\"{:.2}\" text-anchor=\"end\">{name}</text>",
                    left - 0.15,
                    y + 0.62
                );
            }
            for (predicted, &times) in row.iter().enumerate().filter(|&(_, &times)| times > 0) {
                let x = left + predicted as f64;
                let colour = if predicted == truth { "var(--line-1)" } else { "var(--line-2)" };
                let title = escaped(&format!("{}: {times} predicted as {}", names[truth], names[predicted]));
                let _ = write!(
                    self.body,
                    "<g><title>{title}</title><rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"1\" height=\"1\" \
                     fill=\"{colour}\" fill-opacity=\"{:.2}\"/>",
                    0.1 + 0.8 * times as f64 / all
                );
                if written {
                    let _ = write!(
                        self.body,
                        "<text x=\"{:.2}\" y=\"{:.2}\" text-anchor=\"middle\">{times}</text>",
                        x + 0.5,
                        y + 0.62
                    );
                }
                self.body.push_str("</g>");
            }
        }
        self.body.push_str(
            "</svg><figcaption>Rows are true classes, columns are predicted classes in the same order. The diagonal is \
             correct.</figcaption></figure>\n",
        );
        self
    }

    /// Adds images side by side, each with its caption.
    pub(crate) fn pictures(&mut self, pictures: &[Picture]) -> &mut Self {
        self.body.push_str("<div class=\"sheet\">\n");
        for Picture { address, name, lines } in pictures {
            let address = if address.starts_with("data:") { address.clone() } else { encoded(address) };
            let (address, name) = (escaped(&address), escaped(name));
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

    /// Returns the page as HTML. It ends with the command that made it.
    pub(crate) fn html(&self) -> String {
        let (title, contents) = (escaped(&self.title), self.contents());
        let made_by = html::made_by(&command_line(std::env::args_os().skip(1)));
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n{}{contents}{}{made_by}\
             </body>\n</html>\n",
            self.summary, self.body
        )
    }

    /// Links to the headings, if there are many.
    fn contents(&self) -> String {
        if self.headings.len() < CONTENTS_FROM {
            return String::new();
        }
        let link = |(i, text): (usize, &String)| format!("<a href=\"#s{}\">{}</a>", i + 1, escaped(text));
        let links: Vec<String> = self.headings.iter().enumerate().map(link).collect();
        format!("<nav>{}</nav>\n", links.join("\n"))
    }

    fn element(&mut self, tag: &str, text: &str) -> &mut Self {
        let _ = writeln!(self.body, "<{tag}>{}</{tag}>", escaped(text));
        self
    }
}

/// Returns a command as text. Arguments may be paths that are no text.
fn command_line(arguments: impl Iterator<Item = OsString>) -> String {
    let words = arguments.map(|argument| argument.to_string_lossy().into_owned());
    std::iter::once("dphe".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

/// The class of the style sheet that colours a verdict.
fn tone_class(tone: Tone) -> &'static str {
    match tone {
        Tone::Good => "good",
        Tone::Doubtful => "doubtful",
        Tone::Bad => "bad",
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
    fn verdicts_are_coloured_in_their_own_column() {
        let mut page = Page::new("claims");
        let row = |tone, claim: &str, word: &str| (tone, vec![claim.to_owned(), word.to_owned()]);
        page.verdict_table(
            &["claim", ""],
            &[
                row(Tone::Good, "one", "holds"),
                row(Tone::Bad, "two", "fails"),
                row(Tone::Good, "three", "holds"),
            ],
            1,
        );
        let html = page.html();
        assert_eq!(html.matches("<td class=\"text good\">holds</td>").count(), 2, "{html}");
        assert_eq!(html.matches("<td class=\"text bad\">fails</td>").count(), 1, "{html}");
    }

    #[test]
    fn pages_with_many_headings_list_them_and_all_name_their_command() {
        let mut page = Page::new("long");
        for i in 0..CONTENTS_FROM {
            page.heading(&format!("part {i}"));
        }
        let html = page.html();
        assert!(html.contains("<a href=\"#s5\">part 4</a>") && html.contains("<h2 id=\"s5\">part 4</h2>"));
        assert!(html.contains("<footer>") && html.contains(env!("CARGO_PKG_VERSION")));
        assert!(!Page::new("short").html().contains("<nav>"));
    }

    #[cfg(unix)]
    #[test]
    fn commands_with_paths_that_are_no_text_are_shown() {
        use std::os::unix::ffi::OsStringExt as _;
        let path = OsString::from_vec(b"photos-\xFF".to_vec());
        assert_eq!(command_line(["predict".into(), path].into_iter()), "dphe predict photos-\u{fffd}");
    }

    #[test]
    fn text_is_escaped() {
        let mut page = Page::new("a <script>alert('1')</script>");
        page.heading("h & h")
            .paragraph("1 < 2")
            .table(&["<i>"], &[vec!["\"q\"".into()]])
            .matrix(&["<b>"], &[vec![3]]);
        page.lead("<i>").figures(&[Figure::new("<b>", "<i>".into(), "<b>").toned(Tone::Good)]);
        let html = page.html();
        assert!(!html.contains("<script") && !html.contains("<i>") && !html.contains("<b>"));
        assert!(
            html.contains("<h2 id=\"s1\">h &amp; h</h2>")
                && html.contains("<td class=\"text\">&quot;q&quot;</td>"),
            "{html}"
        );
    }
}
