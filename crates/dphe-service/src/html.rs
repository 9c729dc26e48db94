//! HTML that reports and the dashboard share: the style sheet, tables, and escaping.

use core::fmt::Write as _;

/// The style sheet of reports and of the dashboard, with a light and a dark theme.
pub const STYLE: &str = "
:root { color-scheme: light dark; --back: #ffffff; --ink: #1a1d21; --soft: #5c6670; --grid: #d9dee3; --card: #f5f7f9;
  --line-1: #0b62c4; --line-2: #b3261e; --line-3: #1a7f37; --line-4: #8a4baf; --line-5: #9a6700; --line-6: #57606a; }
@media (prefers-color-scheme: dark) { :root { --back: #14171a; --ink: #e6e9ec; --soft: #a3adb7; --grid: #343b42;
  --card: #1d2226; --line-1: #6cb0ff; --line-2: #ff8a80; --line-3: #63d08a; --line-4: #d0a2f0; --line-5: #e3b341;
  --line-6: #a3adb7; } }
body { background: var(--back); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; margin: 0 auto;
  max-width: 70rem; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.6rem; line-height: 1.25; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
p { max-width: 44rem; } .soft { color: var(--soft); }
.plots { display: grid; gap: 1rem; margin: 1rem 0; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); }
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
