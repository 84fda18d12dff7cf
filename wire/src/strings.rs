//! Text forms of resources (socket-protocol.md 7.9, 11.6): escaped paths, resource strings, state strings.
//!
//! These are the forms of the protocol, between our daemon and our client library, which know nothing of leases: names are escaped
//! too, and what is printed can be read again. What the C library's functions make of the same strings, to the byte and with their
//! quirks, is in `sanlock-lease` (`text::library`), beside the rules for the arguments of the command line.

use crate::flags::ResourceFlags;
use crate::limits::{MAX_DISKS, MAX_STATE_ITEM, NAME_LEN, PATH_LEN};
use crate::name::{Name, PathError};
use crate::types::{Disk, Resource, ResourceSpec};

/// Why a string is not a resource, or a resource not a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StringError {
    /// Fewer than 3 bytes; the library returns -6.
    #[error("resource string of {len} bytes is too short")]
    TooShort {
        /// Bytes given.
        len: usize,
    },
    /// More than 4 disks; the library returns -2.
    #[error("resource string with {count} disks, at most {MAX_DISKS} are possible")]
    TooManyDisks {
        /// Disks found.
        count: usize,
    },
    /// Wrong number of fields, or a field that is too long, empty or not a number; the library returns -1.
    #[error("malformed resource string: {0}")]
    Malformed(&'static str),
    /// An item above 4399 bytes; the library returns -22.
    #[error("resource string of {len} bytes, at most {MAX_STATE_ITEM} are possible")]
    TooLong {
        /// Bytes of the item.
        len: usize,
    },
    /// A disk's path has no NUL.
    #[error(transparent)]
    Path(#[from] PathError),
}

impl StringError {
    /// The number that the C library's function returns.
    #[must_use]
    pub const fn code(&self) -> i32 {
        match self {
            Self::TooShort { .. } => crate::code::ENXIO,
            Self::TooManyDisks { .. } => -2,
            Self::Malformed(_) => -1,
            Self::TooLong { .. } | Self::Path(_) => crate::code::EINVAL,
        }
    }
}

/// Appends `path` with a backslash before every `:` and blank; a backslash and the byte after it are copied as they are.
fn path_export(out: &mut Vec<u8>, path: &[u8]) {
    let mut bytes = path.iter().copied();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => {
                out.push(byte);
                out.extend(bytes.next());
            }
            b':' | b' ' => out.extend_from_slice(&[b'\\', byte]),
            _ => out.push(byte),
        }
    }
}

/// Appends `name` with a backslash before every `:`, blank and backslash, so that [`str_to_res`] gives it back. The C
/// library leaves names as they are and then cannot parse what it printed.
fn name_export(out: &mut Vec<u8>, name: &Name) {
    for &byte in name.name_bytes() {
        if matches!(byte, b':' | b' ' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
}

/// The resource string `lockspace:name[:path:offset]…:lver`, or `:SH` at the end for shared, with escapes.
///
/// # Errors
/// [`StringError::TooLong`] above 4399 bytes, [`StringError::Path`] for a path without NUL.
pub fn res_to_str(spec: &ResourceSpec) -> Result<Vec<u8>, StringError> {
    let resource = spec.resource();
    let mut out = Vec::new();
    name_export(&mut out, &resource.lockspace_name);
    out.push(b':');
    name_export(&mut out, &resource.name);
    for disk in spec.disks() {
        out.push(b':');
        path_export(&mut out, disk.path.path()?);
        out.extend_from_slice(format!(":{}", disk.offset.get()).as_bytes());
    }
    if resource.flags.get() & ResourceFlags::SHARED.bits() != 0 {
        out.extend_from_slice(b":SH");
    } else {
        out.extend_from_slice(format!(":{}", resource.lver.get()).as_bytes());
    }
    if out.len() > MAX_STATE_ITEM {
        return Err(StringError::TooLong { len: out.len() });
    }
    Ok(out)
}

/// Every field after the names has from 1 to 1023 bytes, as a path has to.
fn bounded(field: Vec<u8>) -> Result<Vec<u8>, StringError> {
    if field.is_empty() || field.len() >= PATH_LEN {
        return Err(StringError::Malformed(
            "a path, an offset or the last field is empty or longer than 1023 bytes",
        ));
    }
    Ok(field)
}

/// Parses a resource string by the rules of 11.6.
///
/// # Errors
/// [`StringError`], see its variants.
pub fn str_to_res(text: &[u8]) -> Result<ResourceSpec, StringError> {
    if text.len() < 3 {
        return Err(StringError::TooShort { len: text.len() });
    }
    let fields = split_unescaped(text);
    let colons = fields.len() - 1;
    if colons == 0 || colons == 2 {
        return Err(StringError::Malformed("number of fields"));
    }
    let count = (colons - 1) / 2;
    if count > MAX_DISKS {
        return Err(StringError::TooManyDisks { count });
    }
    let mut fields = fields.into_iter();
    // A backslash at the end is seen where it stands: an error of an earlier field comes first.
    let mut next = || {
        fields
            .next()
            .unwrap_or_else(|| Ok(Vec::new()))
            .map_err(|Dangling| StringError::Malformed("backslash at the end"))
    };
    let lockspace_name = string_name(&next()?)?;
    let mut resource = Resource::new(lockspace_name, string_name(&next()?)?);
    let mut disks = Vec::new();
    for _ in 0..count {
        let path = bounded(next()?)?;
        let offset =
            decimal_prefix(&bounded(next()?)?).ok_or(StringError::Malformed("an offset is not a number"))?;
        disks.push(Disk::new(path, offset)?);
    }
    if (colons - 1) % 2 == 1 {
        let last = bounded(next()?)?;
        if last.starts_with(b"SH") {
            resource.flags = ResourceFlags::SHARED.bits().into();
        } else {
            resource.flags = ResourceFlags::LVER.bits().into();
            resource.lver = number_base_0(&last).into();
        }
    }
    ResourceSpec::new(resource, disks).map_err(|error| StringError::TooManyDisks { count: error.count })
}

/// The state string of these resources: their strings separated by one blank. Empty for none.
///
/// # Errors
/// As [`res_to_str`].
pub fn args_to_state<'a>(specs: impl IntoIterator<Item = &'a ResourceSpec>) -> Result<Vec<u8>, StringError> {
    let mut out = Vec::new();
    for spec in specs {
        if !out.is_empty() {
            out.push(b' ');
        }
        out.extend_from_slice(&res_to_str(spec)?);
    }
    Ok(out)
}

/// Parses a state string: splits at blanks, then as [`str_to_res`]. A blank before the third colon of an item belongs to the
/// item, so that a blank in a first path survives, and so does a byte after a backslash, even after one that is itself escaped:
/// that is how the C library splits.
///
/// # Errors
/// The error of the first item that does not parse; [`StringError::TooShort`] for an empty string or a trailing blank,
/// [`StringError::TooLong`] for an item above 4399 bytes.
pub fn state_to_args(state: &[u8]) -> Result<Vec<ResourceSpec>, StringError> {
    let mut specs = Vec::new();
    let (mut text, mut colons, mut previous) = (Vec::new(), 0, 0);
    for &byte in state {
        match byte {
            _ if previous == b'\\' => text.push(byte),
            b' ' if colons < 3 => text.extend_from_slice(b"\\ "),
            b' ' => {
                specs.push(item(&text)?);
                text.clear();
                colons = 0;
            }
            _ => {
                colons += u32::from(byte == b':');
                text.push(byte);
            }
        }
        previous = byte;
    }
    specs.push(item(&text)?);
    Ok(specs)
}

fn item(text: &[u8]) -> Result<ResourceSpec, StringError> {
    if text.len() > MAX_STATE_ITEM {
        return Err(StringError::TooLong { len: text.len() });
    }
    str_to_res(text)
}

/// A field that ends in a backslash.
struct Dangling;

/// Splits at unescaped colons and removes one level of backslashes.
fn split_unescaped(text: &[u8]) -> Vec<Result<Vec<u8>, Dangling>> {
    let mut fields = vec![];
    let mut field = vec![];
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => match bytes.next() {
                Some(next) => field.push(next),
                None => {
                    fields.push(Err(Dangling));
                    return fields;
                }
            },
            b':' => fields.push(Ok(core::mem::take(&mut field))),
            _ => field.push(byte),
        }
    }
    fields.push(Ok(field));
    fields
}

fn string_name(field: &[u8]) -> Result<Name, StringError> {
    if field.len() > NAME_LEN {
        return Err(StringError::Malformed("name above 48 bytes"));
    }
    Name::new(field).map_err(|_| StringError::Malformed("NUL in a name"))
}

/// A decimal number at the beginning; what follows is ignored and a minus wraps. `None` without digits.
fn decimal_prefix(field: &[u8]) -> Option<u64> {
    let (negative, digits) = sign(field);
    digits.first().filter(|b| b.is_ascii_digit())?;
    Some(digits_value(negative, digits, 10))
}

/// A number as `strtoull` with base 0 reads it; garbage is 0.
fn number_base_0(field: &[u8]) -> u64 {
    let (negative, digits) = sign(field);
    match digits {
        [b'0', b'x' | b'X', rest @ ..] => digits_value(negative, rest, 16),
        [b'0', rest @ ..] => digits_value(negative, rest, 8),
        _ => digits_value(negative, digits, 10),
    }
}

/// Whether there is a minus, and what follows the blanks and the sign that C skips.
fn sign(field: &[u8]) -> (bool, &[u8]) {
    let start = field.iter().position(|b| !matches!(b, b' ' | b'\t'..=b'\r')).unwrap_or(field.len());
    match field.get(start..).unwrap_or_default() {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    }
}

/// The leading digits. A number beyond 64 bits is the largest one, whatever its sign.
fn digits_value(negative: bool, digits: &[u8], base: u32) -> u64 {
    let value = digits
        .iter()
        .map_while(|&b| char::from(b).to_digit(base))
        .try_fold(0_u64, |value, digit| value.checked_mul(base.into())?.checked_add(digit.into()));
    match value {
        None => u64::MAX,
        Some(value) if negative => value.wrapping_neg(),
        Some(value) => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export(path: &str) -> String {
        let mut out = Vec::new();
        path_export(&mut out, path.as_bytes());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn escaping_follows_the_table() {
        assert_eq!(export("/a:b c"), r"/a\:b\ c");
        assert_eq!(export(r"/a\:b\ c"), r"/a\:b\ c");
        assert_eq!(export(r"/a\\b"), r"/a\\b");
        assert_eq!(export(r"/end\"), r"/end\");
    }

    #[test]
    fn resource_strings_follow_the_table() {
        let plain = str_to_res(b"L:R:/p:0").unwrap();
        assert_eq!(
            (plain.resource().flags.get(), plain.resource().lver.get(), plain.disks().len()),
            (0, 0, 1)
        );
        let lver = str_to_res(b"L:R:/p:0:5").unwrap();
        assert_eq!((lver.resource().flags.get(), lver.resource().lver.get()), (1, 5));
        assert_eq!(str_to_res(b"L:R:/p:0:0x10").unwrap().resource().lver.get(), 16);
        assert_eq!(str_to_res(b"L:R:/p:0:017").unwrap().resource().lver.get(), 15);
        assert_eq!(str_to_res(b"L:R:/1:0:/2:0:/3:0:/4:0:5").unwrap().disks().len(), 4);
        assert_eq!(str_to_res(b"L:R:/p:0:sh").unwrap().resource().lver.get(), 0);
        let shared = str_to_res(b"L:R:/p:0:/q:1:SH").unwrap();
        assert_eq!((shared.resource().flags.get(), shared.disks().len()), (4, 2));
        assert_eq!(shared.disks()[1].offset.get(), 1);
        assert_eq!(str_to_res(b"L:R").unwrap().disks().len(), 0);
        assert_eq!(str_to_res(br"L:R\:X:/a\:b:12abc").unwrap().resource().name.name_bytes(), b"R:X");
        assert_eq!(str_to_res(b"L:R:/p:-1").unwrap().disks()[0].offset.get(), u64::MAX);
        assert_eq!(str_to_res(b"L:R:/p:\x0b5").unwrap().disks()[0].offset.get(), 5);
        let beyond = str_to_res(b"L:R:/p:-99999999999999999999:-99999999999999999999").unwrap();
        assert_eq!((beyond.disks()[0].offset.get(), beyond.resource().lver.get()), (u64::MAX, u64::MAX));
        for (text, code) in [
            ("L", -6),
            ("LRS", -1),
            ("L:R:x", -1),
            ("L:R:/p:x", -1),
            ("L:R:/p:0:", -1),
            ("L:R::0", -1),
            (r"L:R:/p:0\", -1),
            ("L:R:/1:0:/2:0:/3:0:/4:0:/5:0", -2),
            (r"L:R:/1:0:/2:0:/3:0:/4:0:/5:0\", -2),
        ] {
            assert_eq!(str_to_res(text.as_bytes()).unwrap_err().code(), code, "{text}");
        }
        let name = "n".repeat(49);
        assert_eq!(str_to_res(format!("{name}:R:/p:0").as_bytes()).unwrap_err().code(), -1);
    }

    /// As seen with the library of 3.8.5: each of them has room for 1023 bytes.
    #[test]
    fn offsets_and_last_fields_are_no_longer_than_paths() {
        for (len, ok) in [(1023, true), (1024, false), (1251, false)] {
            let digits = "0".repeat(len);
            let rest = "x".repeat(len - 2);
            for text in [
                format!("L:R:/p:0:{digits}"),
                format!("L:R:/p:0:SH{rest}"),
                format!("L:R:/p:{digits}"),
                format!("L::SH{rest}:0"),
            ] {
                let found = str_to_res(text.as_bytes()).map_err(|error| error.code());
                assert_eq!(found.map(|_| ()), if ok { Ok(()) } else { Err(-1) }, "{len}");
            }
        }
    }

    #[test]
    fn state_strings_round_trip() {
        let text = br"LS1:R1:/srv/a:1048576:3 LS1:R3:/srv/a\ b\:c:3145728:SH";
        let specs = state_to_args(text).unwrap();
        assert_eq!(specs.len(), 2);
        assert_eq!(specs[1].disks()[0].path.path().unwrap(), b"/srv/a b:c");
        assert_eq!(args_to_state(&specs).unwrap(), text);
        // 48 bytes without NUL end there.
        let full = Name::new([b'n'; 48]).unwrap();
        let spec = ResourceSpec::new(Resource::new(full, full), vec![]).unwrap();
        assert_eq!(res_to_str(&spec).unwrap().len(), 48 + 1 + 48 + 2);
    }

    #[test]
    fn blanks_in_state_strings() {
        let specs = state_to_args(b"L:R:/a b:0:1 L:S:/c:0:1").unwrap();
        assert_eq!(specs[0].disks()[0].path.path().unwrap(), b"/a b");
        assert_eq!(specs[1].resource().name.name_bytes(), b"S");
        assert_eq!(state_to_args(b"").unwrap_err().code(), -6);
        assert_eq!(state_to_args(b"L:R:/p:0:1 ").unwrap_err().code(), -6);
        // As the C library: a blank after two backslashes does not split, and a lone blank counts as two bytes.
        assert_eq!(state_to_args(br"L:R:/a:0:1\\ L:S:/c:0:1").unwrap_err().code(), -1);
        assert_eq!(state_to_args(b"L ").unwrap_err().code(), -1);
        let long = format!("L:R:/{}:0:1", "p".repeat(4400));
        assert_eq!(state_to_args(long.as_bytes()).unwrap_err().code(), -22);
    }

    #[test]
    fn an_item_has_at_most_4399_bytes() {
        // Each colon of a path is written with two bytes.
        let spec = |colons: usize| {
            let path = |n: usize| format!("/{}{}", ":".repeat(n), "p".repeat(1022 - n));
            let disks = [colons, 0, 0, 0].map(|n| Disk::new(path(n), 7).unwrap());
            ResourceSpec::new(Resource::new(Name::truncated("L"), Name::truncated("R")), disks.to_vec())
                .unwrap()
        };
        let plain = res_to_str(&spec(0)).unwrap().len();
        let longest = res_to_str(&spec(4399 - plain)).unwrap();
        assert_eq!(longest.len(), 4399);
        assert_eq!(state_to_args(&longest), Ok(vec![str_to_res(&longest).unwrap()]));
        assert_eq!(res_to_str(&spec(4400 - plain)), Err(StringError::TooLong { len: 4400 }));
        assert_eq!(res_to_str(&spec(4500 - plain)), Err(StringError::TooLong { len: 4500 }));
    }

    #[test]
    fn an_unterminated_path_is_an_error() {
        let disk = Disk { path: crate::DiskPath::from_raw([b'x'; 1024]), ..Disk::EMPTY };
        let spec = ResourceSpec::new(Resource::new(Name::EMPTY, Name::EMPTY), vec![disk]).unwrap();
        assert_eq!(res_to_str(&spec).unwrap_err().code(), -22);
    }
}
