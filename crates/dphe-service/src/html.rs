//! HTML that reports and the dashboard share: the style sheet, tables, and escaping.

use core::fmt::Write as _;
use std::time::SystemTime;

/// The style sheet of reports and of the dashboard, with a light and a dark theme.
pub const STYLE: &str = "
:root { color-scheme: light dark; --back: #ffffff; --ink: #1a1d21; --soft: #5c6670; --grid: #d9dee3; --card: #f5f7f9;
  --line-1: #0b62c4; --line-2: #b3261e; --line-3: #1a7f37; --line-4: #8a4baf; --line-5: #9a6700; --line-6: #57606a; }
@media (prefers-color-scheme: dark) { :root { --back: #14171a; --ink: #e6e9ec; --soft: #a3adb7; --grid: #343b42;
  --card: #1d2226; --line-1: #6cb0ff; --line-2: #ff8a80; --line-3: #63d08a; --line-4: #d0a2f0; --line-5: #e3b341;
  --line-6: #a3adb7; } }
body { background: var(--back); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; margin: 0 auto;
  max-width: 76rem; padding: 1.5rem 1.5rem 4rem; }
h1 { font-size: 1.8rem; line-height: 1.25; margin: 1rem 0 .5rem; }
h2 { border-top: 1px solid var(--grid); font-size: 1.25rem; margin: 2.5rem 0 .75rem; padding-top: 1.25rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 .3rem; }
p { max-width: 50rem; } .lead { font-size: 1.1rem; max-width: 56rem; } .soft { color: var(--soft); }
a { color: var(--line-1); }
.good { color: var(--line-3); } .bad { color: var(--line-2); } .doubtful { color: var(--line-5); }
.figures { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 15rem), 1fr)); margin: 1.25rem 0; }
.figure { background: var(--card); border-radius: 8px; padding: .9rem 1.1rem; }
.figure b { display: block; font-size: 1.9rem; font-variant-numeric: tabular-nums; line-height: 1.3; }
nav { background: var(--card); border-radius: 8px; columns: 17rem; padding: .9rem 1.1rem; } nav a { display: block; }
.plots { display: grid; gap: 1rem; margin: 1.25rem 0; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); }
figure { background: var(--card); border-radius: 8px; margin: 0; padding: .75rem; }
.plots figure { max-width: 44rem; } .matrix { max-width: 44rem; }
figcaption { font-weight: 600; padding: 0 .25rem .25rem; } figure svg { display: block; height: auto; width: 100%; }
.scroll { margin: 1rem 0; overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--grid); padding: .35rem 1.2rem .35rem 0; text-align: right; white-space: nowrap; }
.prose td { text-align: left; vertical-align: top; white-space: normal; }
th.text, td.text { text-align: left; }
th { color: var(--soft); font-weight: 500; vertical-align: bottom; white-space: normal; }
.prose td.good, .prose td.bad, .prose td.doubtful { font-weight: 600; white-space: nowrap; }
.sheet { display: grid; gap: .75rem; grid-template-columns: repeat(auto-fill, minmax(11rem, 1fr)); margin: 1rem 0; }
.sheet img { aspect-ratio: 4 / 3; display: block; object-fit: contain; width: 100%; }
.sheet figcaption { font-weight: 400; overflow-wrap: anywhere; } .sheet b { display: block; }
img.pixels { aspect-ratio: auto; background: #000; border-radius: 4px; display: block; image-rendering: pixelated; }
.gallery th { max-width: 14rem; vertical-align: top; white-space: normal; }
.gallery tbody th { padding-top: .6rem; } .gallery td { padding-bottom: .6rem; padding-top: .6rem; }
.gallery figure { background: none; display: inline-block; margin-right: .75rem; padding: 0; vertical-align: top; }
.gallery figcaption { font-size: .85rem; font-weight: 400; padding: .2rem 0 0; } .gallery b { font-weight: 400; }
.gallery img { width: 7rem; }
pre { background: var(--card); border-radius: 8px; overflow-x: auto; padding: .75rem; }
footer { border-top: 1px solid var(--grid); color: var(--soft); font-size: .9rem; margin-top: 3rem; overflow-wrap: anywhere;
  padding-top: .75rem; }
@media (max-width: 40rem) { body { padding: 1rem .9rem 3rem; } h1 { font-size: 1.45rem; }
  th, td { padding-right: .8rem; } .prose td { min-width: 9rem; } .gallery img { width: 4.4rem; }
  .gallery th { max-width: 4.6rem; } .gallery th, .gallery td { padding-right: .4rem; white-space: normal; }
  .gallery figure { margin-right: .3rem; max-width: 4.6rem; } figure { padding: .5rem; } }
@media print { :root { color-scheme: light; --back: #ffffff; --ink: #000000; --soft: #444444; --grid: #bbbbbb; --card: #ffffff;
    --line-1: #0b62c4; --line-2: #b3261e; --line-3: #1a7f37; --line-4: #8a4baf; --line-5: #9a6700; --line-6: #57606a; }
  body { font-size: 10pt; max-width: none; padding: 0; } nav { display: none; } .scroll { overflow: visible; }
  figure, tr { break-inside: avoid; } h2, h3 { break-after: avoid; } th, td { white-space: normal; } }
";

/// Writes a table. The first column is text, the others are numbers.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    table_with(head, rows, |column| column == 0)
}

/// Writes a table. Columns that are not text are aligned to the right.
pub fn table_with(head: &[&str], rows: &[Vec<String>], is_text: impl Fn(usize) -> bool) -> String {
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

/// Returns the end of a page: the command that made it, the version, and the date.
pub fn made_by(command: &str) -> String {
    let (version, date) = (env!("CARGO_PKG_VERSION"), httpdate::fmt_http_date(SystemTime::now()));
    format!("<footer><code>{}</code><br>dphe {version}, {date}</footer>\n", escaped(command))
}

/// Replaces the characters that have a meaning in HTML and SVG, in text and in quoted attributes.
pub fn escaped(text: &str) -> String {
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
