//! Decodes photos. The format is detected from the content, sizes are limited, and EXIF orientation is applied.

use std::io::Cursor;

use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};

use crate::catch_panic::catch_panic;
use crate::resample::Picture;

/// The largest picture that is decoded.
const MOST_PIXELS: u64 = 100_000_000;
/// Memory that a decoder may allocate: four channels of 16 bits per pixel.
const MOST_BYTES: u64 = MOST_PIXELS * 8;

/// Decodes a picture to 8-bit RGB and turns it upright. Alpha is dropped, as in Pillow's `convert("RGB")`.
///
/// # Errors
/// Returns a sentence that says what is wrong with the file.
pub(crate) fn decode(bytes: &[u8]) -> Result<Picture, String> {
    catch_panic(|| decode_unguarded(bytes))
        .unwrap_or_else(|panic| Err(format!("the picture is damaged: {panic}")))
}

fn decode_unguarded(bytes: &[u8]) -> Result<Picture, String> {
    if bytes.is_empty() {
        return Err("the file is empty".into());
    }
    let format = image::guess_format(bytes).map_err(|_| NOT_A_PICTURE)?;
    let known = [ImageFormat::Jpeg, ImageFormat::Png, ImageFormat::WebP, ImageFormat::Gif, ImageFormat::Bmp];
    if !known.contains(&format) {
        return Err(NOT_A_PICTURE.into());
    }
    if format == ImageFormat::Jpeg && !is_whole_jpeg(bytes) {
        // the decoder would silently fill the rest with grey
        return Err("the JPEG data is cut off".into());
    }
    let mut limits = Limits::default();
    limits.max_alloc = Some(MOST_BYTES);
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(|error| error.to_string())?;
    let (width, height) = decoder.dimensions();
    if u64::from(width) * u64::from(height) > MOST_PIXELS {
        return Err(format!(
            "the picture has {width} x {height} pixels, more than the limit of {MOST_PIXELS}"
        ));
    }
    let orientation = decoder.orientation().map_err(|error| error.to_string())?;
    let mut image = DynamicImage::from_decoder(decoder).map_err(|error| error.to_string())?;
    image.apply_orientation(orientation);
    let image = image.into_rgb8();
    let (width, height) = (image.width() as usize, image.height() as usize);
    if width == 0 || height == 0 {
        return Err("the picture has no pixels".into());
    }
    Ok(Picture { width, height, pixels: image.into_raw() })
}

const NOT_A_PICTURE: &str = "not a JPEG, PNG, WebP, GIF or BMP picture";

/// Returns whether a JPEG file is complete up to its end-of-image marker.
fn is_whole_jpeg(bytes: &[u8]) -> bool {
    let mut at = 2;
    loop {
        // skip compressed data and padding up to the next marker
        let Some(next) = bytes.get(at..).and_then(|rest| rest.iter().position(|&byte| byte == 0xff)) else {
            return false;
        };
        at += next + 1;
        match bytes.get(at) {
            None => return false,
            Some(0xd9) => return true,
            // stuffed bytes, restart markers and other markers without a length
            Some(0x00 | 0x01 | 0xd0..=0xd8) => at += 1,
            Some(0xff) => (),
            Some(_) => match bytes.get(at + 1..at + 3) {
                Some(&[high, low]) => at += 1 + usize::from(u16::from_be_bytes([high, low])).max(2),
                _ => return false,
            },
        }
    }
}
