//! Small greyscale pictures and bars in a terminal.

use crate::fashion::SIDE;
use crate::terminal::has_colour;

/// Columns of a picture. A row of text has two rows of pixels, so a picture has half as many rows.
pub(super) const COLUMNS: usize = 18;
/// The characters of a terminal without colours, from dark to bright.
const SHADES: [char; 5] = [' ', '░', '▒', '▓', '█'];
/// The greys of the palette of 256 colours.
const FIRST_GREY: u8 = 232;
const GREYS: usize = 24;

/// Draws a picture as lines of [`COLUMNS`] characters.
pub(super) fn picture(grey: &[u8]) -> Vec<String> {
    let pixels: Vec<Vec<u8>> =
        (0..COLUMNS).map(|y| (0..COLUMNS).map(|x| mean(grey, x, y)).collect()).collect();
    pixels.chunks(2).map(|rows| if has_colour() { blocks(rows) } else { shades(rows) }).collect()
}

/// Returns a bar that is `share` of `width` long.
pub(super) fn bar(share: f64, width: usize) -> String {
    "█".repeat((share.clamp(0.0, 1.0) * width as f64).round() as usize)
}

/// The mean of the pixels that a point of the drawing covers.
fn mean(grey: &[u8], x: usize, y: usize) -> u8 {
    let range = |at: usize| at * SIDE / COLUMNS..((at + 1) * SIDE).div_ceil(COLUMNS);
    let (mut sum, mut count) = (0u32, 0u32);
    for row in range(y) {
        for column in range(x) {
            sum += grey.get(row * SIDE + column).copied().map_or(0, u32::from);
            count += 1;
        }
    }
    (sum / count.max(1)) as u8
}

/// Two rows of pixels as half blocks, the upper one in the foreground.
fn blocks(rows: &[Vec<u8>]) -> String {
    let colour = |row: usize, x: usize| {
        let grey = rows.get(row).and_then(|row| row.get(x)).copied().unwrap_or(0);
        FIRST_GREY + (usize::from(grey) * (GREYS - 1) / usize::from(u8::MAX)) as u8
    };
    let cells = (0..COLUMNS).map(|x| format!("\u{1b}[38;5;{}m\u{1b}[48;5;{}m▀", colour(0, x), colour(1, x)));
    cells.collect::<String>() + "\u{1b}[0m"
}

fn shades(rows: &[Vec<u8>]) -> String {
    let sum =
        |x: usize| rows.iter().filter_map(|row| row.get(x)).map(|&grey| usize::from(grey)).sum::<usize>();
    (0..COLUMNS).map(|x| SHADES[sum(x) * SHADES.len() / (rows.len() * 256)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_keep_their_bright_places() {
        let mut grey = vec![0; SIDE * SIDE];
        grey[..SIDE * SIDE / 2].fill(255);
        let lines: Vec<String> = (0..COLUMNS)
            .map(|y| (0..COLUMNS).map(|x| mean(&grey, x, y)).collect::<Vec<u8>>())
            .collect::<Vec<_>>()
            .chunks(2)
            .map(shades)
            .collect();
        assert_eq!(lines.len(), COLUMNS / 2);
        assert_eq!((lines[0].as_str(), lines[8].trim()), ("█".repeat(COLUMNS).as_str(), ""));
        assert!(lines.iter().all(|line| line.chars().count() == COLUMNS));
        assert_eq!(bar(0.5, 10), "█████");
    }

    #[test]
    fn colours_end_with_each_line() {
        let line = blocks(&[vec![0; COLUMNS], vec![255; COLUMNS]]);
        assert!(line.starts_with("\u{1b}[38;5;232m\u{1b}[48;5;255m▀") && line.ends_with("\u{1b}[0m"));
    }
}
