//! Just enough of Rust's lexical rules: what is code, what is a comment or a literal, and which brace closes which.

use std::ops::Range;

/// The text with every byte of comments, strings and characters replaced by a space; newlines and lengths stay.
#[must_use]
pub fn mask(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = at + hidden(&bytes[at..], at.checked_sub(1).map(|i| bytes[i]));
        for byte in &mut out[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end.max(at + 1);
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Length of the comment or literal at the beginning of `rest`, 0 when there is none. `before` is the byte in front of it.
fn hidden(rest: &[u8], before: Option<u8>) -> usize {
    let until = |mark: &[u8], from: usize| {
        let found = rest[from..].windows(mark.len()).position(|w| w == mark);
        found.map_or(rest.len(), |i| from + i)
    };
    match rest {
        [b'/', b'/', ..] => until(b"\n", 0),
        [b'/', b'*', ..] => block_comment(rest),
        [b'"', ..] => quoted(rest, b'"'),
        [b'r', b'"' | b'#', ..] if !before.is_some_and(is_word) || before == Some(b'b') => {
            let hashes = rest[1..].iter().take_while(|&&b| b == b'#').count();
            if rest.get(1 + hashes) != Some(&b'"') {
                return 0;
            }
            let mark = [b"\"".as_slice(), &vec![b'#'; hashes]].concat();
            (until(&mark, 2 + hashes) + mark.len()).min(rest.len())
        }
        [b'\'', b'\\', ..] => quoted(rest, b'\''),
        [b'\'', first, ..] => {
            // A character ends in the next quote; a lifetime has none there.
            let width = match first {
                0..0x80 => 1,
                0x80..0xe0 => 2,
                0xe0..0xf0 => 3,
                _ => 4,
            };
            if rest.get(1 + width) == Some(&b'\'') { 2 + width } else { 0 }
        }
        _ => 0,
    }
}

fn quoted(rest: &[u8], mark: u8) -> usize {
    let mut at = 1;
    while let Some(&byte) = rest.get(at) {
        match byte {
            b'\\' => at += 2,
            _ if byte == mark => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0_u32, 0);
    while at < rest.len() {
        match rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] if depth == 1 => return at + 2,
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
    }
    rest.len()
}

const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// The brace that closes the one at `open`, in a masked text.
#[must_use]
pub fn closing(mask: &str, open: usize) -> Option<usize> {
    let mut depth = 0_u32;
    for (at, byte) in mask.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' if depth <= 1 => return Some(at),
            b'}' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// What stands between the outermost braces that end at `function.end`: the body of a function whose span is known.
#[must_use]
pub fn body(mask: &str, function: &Range<usize>) -> Option<Range<usize>> {
    let last = function.end.checked_sub(1)?;
    let mut at = function.start;
    loop {
        at += mask.get(at..function.end)?.find('{')?;
        match closing(mask, at)? {
            end if end == last => return Some(at + 1..end),
            end => at = end + 1,
        }
    }
}

/// Test modules, with their attribute.
fn test_modules(mask: &str) -> Vec<Range<usize>> {
    const ATTRIBUTE: &str = "#[cfg(test)]";
    let mut found: Vec<Range<usize>> = Vec::new();
    for (start, _) in mask.match_indices(ATTRIBUTE) {
        if found.last().is_some_and(|range| range.contains(&start)) {
            continue;
        }
        let mut after = start + ATTRIBUTE.len();
        // Further attributes.
        while let Some(rest) = mask.get(after..).filter(|rest| rest.trim_start().starts_with("#[")) {
            let Some(end) = rest.find(']') else { break };
            after += end + 1;
        }
        let Some(rest) = mask.get(after..).filter(|rest| rest.trim_start().starts_with("mod ")) else {
            continue;
        };
        let Some(mark) = rest.find(['{', ';']) else { continue };
        let end = match rest.as_bytes()[mark] {
            b'{' => closing(mask, after + mark),
            _ => Some(after + mark),
        };
        found.extend(end.map(|end| start..end + 1));
    }
    found
}

/// The code alone: no comments, no test modules, no white space but between two words.
#[must_use]
pub fn normalised(text: &str) -> String {
    let mask = mask(text);
    let tests = test_modules(&mask);
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::new(), 0);
    let mut gap = false;
    while at < bytes.len() {
        if let Some(tests) = tests.iter().find(|range| range.contains(&at)) {
            at = tests.end;
            continue;
        }
        let length = hidden(&bytes[at..], at.checked_sub(1).map(|i| bytes[i]));
        if length > 0 {
            let piece = &bytes[at..at + length];
            if piece.starts_with(b"/") {
                gap = true;
            } else {
                out.extend_from_slice(piece);
                gap = false;
            }
            at += length;
        } else {
            let byte = bytes[at];
            if byte.is_ascii_whitespace() {
                gap = true;
            } else {
                if gap && is_word(byte) && out.last().copied().is_some_and(is_word) {
                    out.push(b' ');
                }
                out.push(byte);
                gap = false;
            }
            at += 1;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Digest (64 bit FNV-1a) of the [`normalised`] text: it changes with the code, not with comments, tests and line breaks.
#[must_use]
pub fn digest(text: &str) -> u64 {
    normalised(text)
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Converts lines and columns (both from 1, columns in characters) to bytes.
#[derive(Debug)]
pub struct Positions<'a> {
    lines: Vec<(usize, &'a str)>,
}

impl<'a> Positions<'a> {
    /// Of this text.
    #[must_use]
    pub fn new(text: &'a str) -> Self {
        let mut start = 0;
        let lines = text.split_inclusive('\n').map(|line| {
            start += line.len();
            (start - line.len(), line)
        });
        Self { lines: lines.collect() }
    }

    /// The byte at a place, `None` beyond the text.
    #[must_use]
    pub fn offset(&self, line: usize, column: usize) -> Option<usize> {
        let (start, text) = self.lines.get(line.checked_sub(1)?)?;
        let skip = column.checked_sub(1)?;
        let inside = text.char_indices().map(|(i, _)| i).chain([text.len()]).nth(skip)?;
        Some(start + inside)
    }

    /// A line without the white space around it, and how many characters of white space stand in front of it.
    #[must_use]
    pub fn line(&self, line: usize) -> Option<(&'a str, usize)> {
        let (_, text) = self.lines.get(line.checked_sub(1)?)?;
        Some((text.trim(), text.chars().take_while(|c| c.is_whitespace()).count()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_masked_and_lifetimes_stay() {
        for (text, expected) in [
            ("a // b {\nc", "a       \nc"),
            ("a/*{/*}*/}*/b", "a           b"),
            (r#"f("\"}",'{','\'','ä')"#, "f(     ,   ,    ,    )"),
            ("r\"{\" br#\"}\"}\"# r#type", "     b         r#type"),
            ("fn f<'a>(x: &'a str)", "fn f<'a>(x: &'a str)"),
        ] {
            assert_eq!(mask(text), expected, "{text}");
        }
    }

    #[test]
    fn a_body_is_found_behind_braces_of_the_head() {
        let text = "fn f() -> A<{ 1 }> { if x { y } }";
        let range = body(&mask(text), &(0..text.len()));
        assert_eq!(range.map(|r| &text[r]), Some(" if x { y } "));
    }

    #[test]
    fn the_digest_sees_code_alone() {
        let text = "/// Says.\nfn f() -> u8 {\n    1 // one\n}\n";
        let same = "fn f()->u8{1}\n#[cfg(test)]\n#[expect(x)]\nmod tests {\n    fn g() { \"}\"; }\n}\n";
        assert_eq!(normalised(text), "fn f()->u8{1}");
        assert_eq!(digest(text), digest(same));
        assert_ne!(digest(text), digest("fn f() -> u8 { 2 }"));
        assert_ne!(digest("a(\"x y\")"), digest("a(\"xy\")"));
        assert_ne!(digest("let mut a"), digest("letmut a"));
    }

    #[test]
    fn places_are_counted_in_characters() {
        let positions = Positions::new("ab\n  äöx\n");
        assert_eq!(positions.offset(2, 5), Some(9));
        assert_eq!(positions.offset(2, 3), Some(5));
        assert_eq!(positions.offset(1, 3), Some(2));
        assert_eq!(positions.offset(3, 1), None);
        assert_eq!(positions.line(2), Some(("äöx", 2)));
    }
}
