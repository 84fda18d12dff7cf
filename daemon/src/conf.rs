//! The syntax of `sanlock.conf` (command-line.md 10.1): lines `key = value`, without meaning yet.
//!
//! Read differently from the original, which splits lines at 127 bytes (so that the tail of a long comment becomes a setting)
//! and gives an integer key without value the number of the line before it: lines are read whole, and a line that cannot be
//! understood is skipped and reported (command-line.md 18.1 #16, 18.2 #32). What the original accepts and what it ignores is
//! otherwise the same: a line that begins with a blank is ignored, the value is one word, text after it is a comment.

use std::fmt;

/// Bytes of the file that are read; the settings there are fit in a small part of it.
pub const FILE_BYTES_MAX: usize = 1 << 20;
/// Warnings that are kept; a file full of garbage is reported by its first lines.
pub const WARNINGS_MAX: usize = 100;
/// Bytes of a piece of the file quoted in a warning.
const EXCERPT_BYTES: usize = 64;

/// What some editors begin a file with.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// One `key = value` line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting<'a> {
    /// Line number, from 1.
    pub line: usize,
    /// What stands before the first blank, tab or `=`.
    pub key: &'a [u8],
    /// The first word after the first `=`.
    pub value: &'a [u8],
}

/// Something in the configuration that has no effect, or not the one it seems to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// Line number from 1, `None` when the warning concerns the file or the command line.
    pub line: Option<usize>,
    /// What was found and what happens instead.
    pub text: String,
}

impl Warning {
    /// A warning about a line.
    pub(crate) fn at(line: usize, text: String) -> Self {
        Self { line: Some(line), text }
    }

    /// A warning about the file or the command line as a whole.
    pub(crate) fn general(text: String) -> Self {
        Self { line: None, text }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "sanlock.conf line {line}: {}", self.text),
            None => f.write_str(&self.text),
        }
    }
}

/// A piece of the file for a message, decoded lossily and short.
pub(crate) fn excerpt(text: &[u8]) -> String {
    String::from_utf8_lossy(text.get(..EXCERPT_BYTES).unwrap_or(text)).into_owned()
}

/// The settings of a file in order, and what was skipped.
#[must_use]
pub fn parse(file: &[u8]) -> (Vec<Setting<'_>>, Vec<Warning>) {
    let mut settings = Vec::new();
    let mut warnings = Vec::new();
    if file.len() > FILE_BYTES_MAX {
        warnings.push(Warning::general(format!(
            "sanlock.conf has {} bytes, only the first {FILE_BYTES_MAX} are read",
            file.len()
        )));
    }
    let file = file.get(..FILE_BYTES_MAX).unwrap_or(file);
    for (number, line) in file.split(|&b| b == b'\n').enumerate() {
        match parse_line(number + 1, line) {
            Ok(Some(setting)) => settings.push(setting),
            Ok(None) => {}
            Err(_) if warnings.len() >= WARNINGS_MAX => {}
            Err(text) => warnings.push(Warning::at(number + 1, text)),
        }
    }
    (settings, warnings)
}

/// The lines that begin with this word, blanks and a byte order mark aside, understood or not; with their numbers.
pub(crate) fn lines_about<'a>(file: &'a [u8], word: &'a [u8]) -> impl Iterator<Item = (usize, &'a [u8])> {
    let is_about = move |line: &[u8]| {
        let text = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        text.trim_ascii_start().starts_with(word)
    };
    (1..).zip(file.split(|&b| b == b'\n')).filter(move |(_, line)| is_about(line))
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r')
}

/// # Errors
/// Why the line has no effect.
pub(crate) fn parse_line(number: usize, line: &[u8]) -> Result<Option<Setting<'_>>, String> {
    if line.first() == Some(&b'#') || line.iter().all(|&b| is_blank(b)) {
        return Ok(None);
    }
    if line.first().is_some_and(|&b| is_blank(b)) {
        let shown = line.trim_ascii();
        if shown.first() == Some(&b'#') {
            return Ok(None);
        }
        return Err(format!("{:?} is ignored because the line begins with a blank", excerpt(shown)));
    }
    let key_end = line.iter().position(|&b| is_blank(b) || b == b'=').unwrap_or(line.len());
    let (key, rest) = line.split_at(key_end);
    if key.is_empty() {
        return Err("a line without a key is ignored".to_owned());
    }
    let Some(equals) = rest.iter().position(|&b| b == b'=') else {
        return Err(format!("{:?} has no value and is ignored", excerpt(key)));
    };
    let value = rest[equals + 1..].trim_ascii_start();
    let value = value.split(|&b| is_blank(b)).next().unwrap_or_default();
    if value.is_empty() {
        return Err(format!("{:?} has no value and is ignored", excerpt(key)));
    }
    Ok(Some(Setting { line: number, key, value }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(file: &str) -> (Vec<(String, String)>, usize) {
        let (settings, warnings) = parse(file.as_bytes());
        let pairs = settings
            .iter()
            .map(|s| {
                (String::from_utf8_lossy(s.key).into_owned(), String::from_utf8_lossy(s.value).into_owned())
            })
            .collect();
        (pairs, warnings.len())
    }

    #[test]
    fn lines() {
        for (file, expected, warnings) in [
            ("", vec![], 0),
            ("# a comment\n\n   \n", vec![], 0),
            ("  # an indented comment\n", vec![], 0),
            ("a = 1\nb=2\nc =3\nd= 4", vec![("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")], 0),
            ("a\t=\t1\t# one\n", vec![("a", "1")], 0),
            ("a = 1\r\nb = 2\r\n", vec![("a", "1"), ("b", "2")], 0),
            ("a = x y\n", vec![("a", "x")], 0),
            ("a b = 1\n", vec![("a", "1")], 0),
            ("a = 1 = 2\n", vec![("a", "1")], 0),
            (" a = 1\n\tb = 2\n", vec![], 2),
            ("a\nb =\n= 3\n", vec![], 3),
            ("a = 1\na = 2\n", vec![("a", "1"), ("a", "2")], 0),
        ] {
            let expected = expected.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
            assert_eq!(pairs(file), (expected, warnings), "{file:?}");
        }
    }

    #[test]
    fn a_long_comment_stays_a_comment() {
        let file = format!("#{}quiet_fail = 0\n", "x".repeat(126));
        assert_eq!(pairs(&file), (vec![], 0));
    }

    #[test]
    fn garbage_is_bounded() {
        let file = " x\n".repeat(10_000);
        assert_eq!(parse(file.as_bytes()).1.len(), WARNINGS_MAX);
        let file = vec![b'\xff'; FILE_BYTES_MAX + 1];
        assert_eq!(parse(&file).1.len(), 2);
    }
}
