//! What a terminal is like.

use std::os::fd::{AsFd, AsRawFd};

/// Columns of the terminal behind a descriptor; `None` where there is none, or it does not say.
#[must_use]
pub fn width(fd: impl AsFd) -> Option<usize> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCGWINSZ writes one `winsize` through the pointer, which lives until the call has returned.
    let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) };
    (result == 0 && size.ws_col > 0).then_some(usize::from(size.ws_col))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_file_has_no_columns() {
        assert_eq!(super::width(std::fs::File::open("/dev/null").unwrap()), None);
    }
}
