//! The string functions of the C library, result for result (disk-format.md 12.4, 12.6, 12.7).
//!
//! Lenient on purpose: trailing text after an offset is ignored, long lockspace names are cut, missing parts are zero. The
//! command line uses [`super::strict`] instead.

use super::number::{lenient_i64, lenient_offset, lenient_u64};
use super::{
    DiskSpec, LockspaceFields, PATH_LEN_MAX, ResourceSpec, TextError, c_str, excerpt, path, split_unescaped,
    unescape,
};
use crate::limits::{DISKS_MAX, NAME_BYTES, PATH_BYTES};
use crate::name::Name;

/// Shortest resource string.
const RESOURCE_TEXT_MIN: usize = 3;
/// Fields of a resource before its disks.
const NAME_FIELDS: usize = 2;
/// Fields of one disk.
const DISK_FIELDS: usize = 2;

/// The parts of a resource string, unescaped and checked for number and length, before numbers are read.
pub(super) struct ResourceParts {
    pub(super) lockspace: Name,
    pub(super) name: Name,
    /// Path and text of the offset.
    pub(super) disks: Vec<(Vec<u8>, Vec<u8>)>,
    /// Text of the last part, if there is one.
    pub(super) version: Option<Vec<u8>>,
}

/// Splits and unescapes a resource string: steps 1 to 3 of disk-format.md 12.4, which lenient and strict reading share.
///
/// # Errors
/// See [`resource`].
pub(super) fn resource_parts(text: &[u8]) -> Result<ResourceParts, TextError> {
    let text = c_str(text);
    if text.len() < RESOURCE_TEXT_MIN {
        return Err(TextError::TooShort { found: text.len() });
    }
    let fields = split_unescaped(text, usize::MAX);
    if fields.len() == 1 || fields.len() == 3 {
        return Err(TextError::Fields { found: fields.len() });
    }
    let disk_count = (fields.len() - NAME_FIELDS) / DISK_FIELDS;
    if disk_count > DISKS_MAX {
        return Err(TextError::TooManyDisks { found: disk_count });
    }
    let mut plain = fields.into_iter().map(unescape);
    let mut next = || plain.next().transpose();

    let lockspace = resource_name("lockspace name", next()?.unwrap_or_default())?;
    let name = resource_name("resource name", next()?.unwrap_or_default())?;
    let mut disks = Vec::with_capacity(disk_count);
    for _ in 0..disk_count {
        let path = bounded_field("path", next()?.unwrap_or_default())?;
        let offset = bounded_field("offset", next()?.unwrap_or_default())?;
        disks.push((path, offset));
    }
    let version = next()?.map(|text| bounded_field("the last field", text)).transpose()?;
    Ok(ResourceParts { lockspace, name, disks, version })
}

fn resource_name(field: &'static str, bytes: Vec<u8>) -> Result<Name, TextError> {
    Name::new(&bytes).map_err(|source| TextError::Name { field, source })
}

/// The limit that every field after the names has in common (disk-format.md 12.4, step 3).
fn bounded_field(field: &'static str, text: Vec<u8>) -> Result<Vec<u8>, TextError> {
    match text.len() {
        0 => Err(TextError::Empty { field }),
        found if found > PATH_LEN_MAX => Err(TextError::Length { field, found }),
        _ => Ok(text),
    }
}

/// Reads a resource string as the C library does; [`TextError::code`] is the number it returns.
///
/// A part that begins with `SH` after the disks means shared, anything else there is a lease version, 0 if it is no number.
///
/// # Errors
/// Fewer than 3 bytes (-6); a backslash at the end, one or three fields, a name above 48 bytes, a part after the names that is
/// empty or longer than 1023 bytes, an offset without a digit (-1); more than 4 disks (-2).
pub fn resource(text: &[u8]) -> Result<ResourceSpec, TextError> {
    let parts = resource_parts(text)?;
    let mut disks = Vec::with_capacity(parts.disks.len());
    for (path, offset) in parts.disks {
        let offset = lenient_offset(&offset).ok_or_else(|| TextError::Number {
            field: "offset",
            text: excerpt(&offset),
            expected: "decimal digits",
        })?;
        disks.push(DiskSpec { path, offset });
    }
    let shared = parts.version.as_ref().is_some_and(|text| text.starts_with(b"SH"));
    let lver = parts.version.filter(|_| !shared).map(|text| lenient_u64(&text));
    Ok(ResourceSpec { lockspace: parts.lockspace, name: parts.name, disks, lver, shared })
}

/// Reads a lockspace string as the C library does; it cannot fail.
///
/// The name keeps its backslashes and is cut at 48 bytes. A path of 1024 bytes or more comes back as 1024 bytes, which have no
/// room for a terminating NUL: treat it as an error.
#[must_use]
pub fn lockspace(text: &[u8]) -> LockspaceFields {
    let mut parts = split_unescaped(c_str(text), 4).into_iter();
    let name = parts.next().unwrap_or_default();
    let name = name.get(..NAME_BYTES).unwrap_or(name);
    LockspaceFields {
        // Cut to the limit and free of NUL, so always a name.
        name: Name::new(name).unwrap_or_default(),
        host_id: parts.next().map(lenient_i64),
        path: parts.next().map(|text| path::import(text, PATH_BYTES).path),
        offset: parts.next().map(lenient_i64),
    }
}

/// Joins resources into the text that `inquire` returns: one blank between two resources.
///
/// # Errors
/// A resource that does not fit its text form (-22).
pub fn join_state(resources: &[ResourceSpec]) -> Result<Vec<u8>, TextError> {
    let texts = resources.iter().map(ResourceSpec::to_text).collect::<Result<Vec<_>, _>>()?;
    Ok(texts.join(&b' '))
}

/// Splits a state text into resource strings, which are still escaped (disk-format.md 12.7).
///
/// A blank ends a resource only after its third unescaped colon; before that it belongs to a name or to the first path and
/// comes back escaped. There is always at least one string, possibly empty.
#[must_use]
pub fn split_state(state: &[u8]) -> Vec<Vec<u8>> {
    const COLONS_BEFORE_OFFSET: usize = 3;
    let mut items = Vec::new();
    let mut item = Vec::new();
    let mut colons = 0;
    let mut previous = 0;
    for &byte in c_str(state) {
        match byte {
            // Unlike everywhere else, a backslash that is itself escaped still protects the byte after it here.
            _ if previous == b'\\' => item.push(byte),
            b' ' if colons < COLONS_BEFORE_OFFSET => item.extend_from_slice(br"\ "),
            b' ' => {
                items.push(std::mem::take(&mut item));
                colons = 0;
            }
            _ => {
                colons += usize::from(byte == b':');
                item.push(byte);
            }
        }
        previous = byte;
    }
    items.push(item);
    items
}

/// Reads a state text.
///
/// # Errors
/// As [`resource`]; an empty text, or one that ends in a blank, gives -6.
pub fn state(state: &[u8]) -> Result<Vec<ResourceSpec>, TextError> {
    split_state(state).iter().map(|item| resource(item)).collect()
}

#[cfg(test)]
mod tests;
