//! The pictures of `dphe demo`: 3,000 pictures of clothes from Fashion-MNIST (see data/README.md).

const BYTES: &[u8] = include_bytes!("../data/fashion.bin");

/// Pixels per row, and rows.
pub(crate) const SIDE: usize = 28;
pub(crate) const PIXELS: usize = SIDE * SIDE;
/// The largest grey value, which is white.
pub(crate) const WHITE: u8 = 15;
/// The names of the classes.
pub(crate) const CLASSES: [&str; 10] =
    ["T-shirt", "trousers", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot"];

/// Returns the number of pictures. There are equally many of each class.
pub(crate) fn count() -> usize {
    BYTES.len() / (PIXELS / 2)
}

/// Returns the class of a picture. Classes alternate.
pub(crate) fn class_of(picture: usize) -> usize {
    picture % CLASSES.len()
}

/// Returns the grey values of a picture, row by row.
pub(crate) fn greys(picture: usize) -> impl Iterator<Item = u8> {
    let bytes = BYTES.chunks_exact(PIXELS / 2).nth(picture).unwrap_or_default();
    bytes.iter().flat_map(|byte| [byte >> 4, byte & WHITE])
}

/// Returns a picture with grey values from 0 to 255, to be shown.
pub(crate) fn shown(picture: usize) -> Vec<u8> {
    greys(picture).map(|grey| grey * (u8::MAX / WHITE)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bundled_pictures_are_complete_and_have_their_classes() {
        assert_eq!((count(), BYTES.len() % (PIXELS / 2)), (3000, 0));
        assert_eq!(shown(7).len(), PIXELS);
        // Trousers are narrow: their pictures are the darkest at both sides.
        let sides = |class: usize| -> u32 {
            let mine = (0..count()).filter(|&picture| class_of(picture) == class);
            mine.flat_map(|picture| greys(picture).enumerate())
                .filter(|&(pixel, _)| !(8..20).contains(&(pixel % SIDE)))
                .map(|(_, grey)| u32::from(grey))
                .sum()
        };
        let darkest = (0..CLASSES.len()).min_by_key(|&class| sides(class)).unwrap();
        assert_eq!(CLASSES[darkest], "trousers");
    }
}
