//! Arguments of the command line, read so that a slip is an error and never another place on the disk.
//!
//! The grammar is that of command-line.md 4. Differences to the lenient reading of the original:
//!
//! * numbers are digits, with blanks around them and a `+` before them at most: `0x100000`, `5x` and `-1` are errors (18.1 #4, 18.2 #28). A part left empty counts as not
//!   given, so 0, as it does there; only a resource needs the offset of each of its disks, and what is formatted its own ([`is_left_empty`]);
//! * `M` works in every offset, with any number of digits and beside `\:` (18.1 #1, #2, #3);
//! * names above 48 bytes and paths above 1023 bytes are errors everywhere (18.1 #19);
//! * a last field of a resource is `SH`, `SHARED` or a number.
//!
//! Kept as it is: backslashes stay in lockspace *names* of `-s` but not in those of `-r`, and the path of a lockspace loses
//! every backslash, so `\\` does not give one.

use super::library::resource_parts;
use super::number::{strict_bytes, strict_decimal, strict_prefixed};
use super::{
    DiskSpec, LockspaceFields, PATH_LEN_MAX, RentrySpec, ResourceSpec, RindexSpec, TextError, c_str, path,
    split_unescaped,
};
use crate::limits::PATH_BYTES;
use crate::name::Name;

/// A lockspace argument (`-s`): `NAME[:HOST_ID[:PATH[:OFFSET]]]`. An empty host id or offset counts as 0, as in `::PATH:`. What follows
/// the offset behind a colon is ignored.
///
/// # Errors
/// A name or path that is too long, or a host id or offset that is not a number. An `M` in what is ignored is one, too: in the original
/// it turns the offset before it into MiB.
pub fn lockspace(text: &[u8]) -> Result<LockspaceFields, TextError> {
    let mut parts = split_unescaped(c_str(text), 4).into_iter();
    Ok(LockspaceFields {
        name: named("lockspace name", parts.next().unwrap_or_default())?,
        host_id: parts.next().map(host_id).transpose()?,
        path: parts.next().map(plain_path).transpose()?,
        offset: parts.next().map(lockspace_offset).transpose()?,
    })
}

/// Whether part number `at` of an address, counted from 0, is there and empty. What is not given counts as 0; where a slip destroys what lies
/// there, as in a format, what looks like a variable without a value is not to be taken for that.
#[must_use]
pub fn is_left_empty(text: &[u8], at: usize) -> bool {
    split_unescaped(c_str(text), at + 2).get(at).is_some_and(|part| part.is_empty())
}

fn lockspace_offset(text: &[u8]) -> Result<u64, TextError> {
    match split_first_colon(text) {
        (number, Some(ignored)) if !ignored.contains(&b'M') => offset(number),
        _ => offset(text),
    }
}

/// An offset, 0 if it is left empty.
fn offset(text: &[u8]) -> Result<u64, TextError> {
    if text.is_empty() { Ok(0) } else { strict_bytes("offset", text) }
}

fn host_id(text: &[u8]) -> Result<u64, TextError> {
    if text.is_empty() { Ok(0) } else { strict_decimal("host_id", text) }
}

fn named(field: &'static str, text: &[u8]) -> Result<Name, TextError> {
    Name::new(text).map_err(|source| TextError::Name { field, source })
}

/// A path of a lockspace or index argument, which may be empty.
fn plain_path(text: &[u8]) -> Result<Vec<u8>, TextError> {
    let imported = path::import(text, PATH_BYTES);
    if imported.terminated {
        Ok(imported.path)
    } else {
        Err(TextError::Length { field: "path", found: text.iter().filter(|&&b| b != b'\\').count() })
    }
}

/// A resource argument (`-r`): `LOCKSPACE:RESOURCE:PATH:OFFSET[:PATH:OFFSET…][:LVER|:SH]`, or `LOCKSPACE:RESOURCE` where no
/// place is needed. Names may be empty where a read call is to fill them in.
///
/// # Errors
/// As [`super::library::resource`], and for offsets and versions that are not entirely numbers.
pub fn resource(text: &[u8]) -> Result<ResourceSpec, TextError> {
    let parts = resource_parts(text)?;
    let mut disks = Vec::with_capacity(parts.disks.len());
    for (path, offset) in parts.disks {
        disks.push(DiskSpec { path, offset: strict_bytes("offset", &offset)? });
    }
    let (lver, shared) = match parts.version.as_deref() {
        None => (None, false),
        Some(b"SH" | b"SHARED") => (None, true),
        Some(text) => (Some(version(text)?), false),
    };
    Ok(ResourceSpec { lockspace: parts.lockspace, name: parts.name, disks, lver, shared })
}

fn version(text: &[u8]) -> Result<u64, TextError> {
    strict_prefixed("lease version", text).map_err(|error| match error {
        TextError::Number { field, text, .. } => {
            TextError::Number { field, text, expected: "a number, or SH for a shared lease" }
        }
        other => other,
    })
}

/// A resource index argument (`-x`): `LOCKSPACE[:PATH[:OFFSET]]`; missing parts are empty or 0.
///
/// # Errors
/// A name or path that is too long, or an offset that is not a number.
pub fn rindex(text: &[u8]) -> Result<RindexSpec, TextError> {
    let mut parts = split_unescaped(c_str(text), 3).into_iter();
    let lockspace = named("lockspace name", parts.next().unwrap_or_default())?;
    let path = parts.next().map(plain_path).transpose()?.unwrap_or_default();
    let offset = parts.next().map(offset).transpose()?.unwrap_or(0);
    Ok(RindexSpec { lockspace, disk: DiskSpec { path, offset } })
}

/// An index entry argument (`-e`): `NAME`, `NAME:OFFSET` or `:OFFSET`. The first colon splits, escaped or not.
///
/// # Errors
/// A name that is too long, or an offset that is not a number.
pub fn rentry(text: &[u8]) -> Result<RentrySpec, TextError> {
    let (name, offset) = split_first_colon(c_str(text));
    Ok(RentrySpec {
        name: named("resource name", name)?,
        offset: offset.map(self::offset).transpose()?.unwrap_or(0),
    })
}

fn split_first_colon(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    match text.iter().position(|&b| b == b':') {
        Some(colon) => (&text[..colon], Some(&text[colon + 1..])),
        None => (text, None),
    }
}

/// The stretch of storage that `direct dump` shows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DumpRange {
    /// Where it begins.
    pub disk: DiskSpec,
    /// Bytes to show; without it the dump ends at the first area that is no lease. A size of 0, or left empty, counts as none, as in
    /// the original.
    pub size: Option<u64>,
}

/// The argument of `direct dump`: `PATH[:OFFSET[:SIZE]]` (command-line.md 4.5).
///
/// # Errors
/// An empty or too long path, or an offset or size that is not a number.
pub fn dump_range(text: &[u8]) -> Result<DumpRange, TextError> {
    let mut parts = split_unescaped(c_str(text), 3).into_iter();
    let path = non_empty(plain_path(parts.next().unwrap_or_default())?)?;
    let offset = parts.next().map(offset).transpose()?.unwrap_or(0);
    let size =
        parts.next().filter(|text| !text.is_empty()).map(|text| strict_bytes("size", text)).transpose()?;
    let size = size.filter(|&size| size > 0);
    Ok(DumpRange { disk: DiskSpec { path, offset }, size })
}

/// The argument of `direct next_free`: `PATH[:OFFSET]`, split at the first colon whether escaped or not (command-line.md 4.5).
///
/// # Errors
/// An empty or too long path, or an offset that is not a number.
pub fn next_free_start(text: &[u8]) -> Result<DiskSpec, TextError> {
    let (path, offset) = split_first_colon(c_str(text));
    if path.len() > PATH_LEN_MAX {
        return Err(TextError::Length { field: "path", found: path.len() });
    }
    Ok(DiskSpec {
        path: non_empty(path.to_vec())?,
        offset: offset.map(self::offset).transpose()?.unwrap_or(0),
    })
}

fn non_empty(path: Vec<u8>) -> Result<Vec<u8>, TextError> {
    if path.is_empty() { Err(TextError::Empty { field: "path" }) } else { Ok(path) }
}

#[cfg(test)]
mod tests;
