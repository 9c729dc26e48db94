//! Samples frames of videos with ffmpeg, if it is installed.

use std::io::{ErrorKind, Read};
use std::path::Path;
use std::process::{Command, Stdio};

/// The first six minutes at one frame per second, as in YouTube-8M.
const FRAMES: usize = 360;
/// The largest frame: 8K with four channels.
const MOST_BYTES: u32 = 7680 * 4320 * 4 + 1024;

/// Passes each sampled frame of a video to `each`, as a BMP file, and returns their number.
pub(super) fn frames(
    path: &Path,
    mut each: impl FnMut(&[u8]) -> Result<(), String>,
) -> Result<usize, String> {
    let mut file = std::ffi::OsString::from("file:");
    file.push(path);
    let mut child = Command::new("ffmpeg")
        // the prefix and the whitelist keep ffmpeg from opening playlists and URLs
        .args(["-nostdin", "-v", "error", "-protocol_whitelist", "file,pipe", "-i"])
        .arg(file)
        .args(["-vf", "fps=1", "-frames:v", &FRAMES.to_string(), "-f", "image2pipe", "-c:v", "bmp", "-"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| match error.kind() {
            ErrorKind::NotFound => "videos need ffmpeg, which is not installed".to_owned(),
            _ => format!("ffmpeg could not be started: {error}"),
        })?;
    let mut out = child.stdout.take().ok_or("ffmpeg has no output")?;
    let read = read_frames(&mut out, &mut each);
    // closing the pipe stops ffmpeg if it has more frames
    drop(out);
    let status = child.wait().map_err(|error| error.to_string())?;
    match read? {
        0 => Err(format!("ffmpeg found no frames in this file ({status})")),
        count if status.success() => Ok(count),
        _ => Err(format!("ffmpeg failed ({status})")),
    }
}

fn read_frames(
    out: &mut impl Read,
    each: &mut impl FnMut(&[u8]) -> Result<(), String>,
) -> Result<usize, String> {
    let mut count = 0;
    let mut frame = Vec::new();
    loop {
        frame.clear();
        // a BMP file starts with "BM" and its size
        out.take(6).read_to_end(&mut frame).map_err(|error| error.to_string())?;
        let size = match frame[..] {
            [] => return Ok(count),
            [b'B', b'M', a, b, c, d] => u32::from_le_bytes([a, b, c, d]),
            _ => return Err("ffmpeg produced output that is not a BMP frame".into()),
        };
        if !(6..=MOST_BYTES).contains(&size) {
            return Err(format!("ffmpeg produced a frame with an invalid size of {size} bytes"));
        }
        out.take(u64::from(size) - 6).read_to_end(&mut frame).map_err(|error| error.to_string())?;
        each(&frame)?;
        count += 1;
    }
}
