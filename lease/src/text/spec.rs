//! What the strings denote, and resources as text (disk-format.md 12.5).

use super::{RESOURCE_STRING_BYTES, TextError, path};
use crate::limits::PATH_BYTES;
use crate::name::Name;

/// A place on storage.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct DiskSpec {
    /// Path of the file or device, unescaped.
    pub path: Vec<u8>,
    /// Byte offset on it.
    pub offset: u64,
}

/// A lockspace and this host's place in it: `NAME:HOST_ID:PATH:OFFSET`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct LockspaceSpec {
    /// Name of the lockspace; empty where a read call is to fill it in.
    pub name: Name,
    /// 0 when not given.
    pub host_id: u64,
    /// Unescaped; empty when not given.
    pub path: Vec<u8>,
    /// Byte offset of the area.
    pub offset: u64,
}

impl LockspaceSpec {
    /// Takes over the fields that a later string gives and keeps the others (command-line.md 3.2).
    pub fn merge(&mut self, fields: LockspaceFields) {
        self.name = fields.name;
        if let Some(host_id) = fields.host_id {
            self.host_id = host_id;
        }
        if let Some(path) = fields.path {
            self.path = path;
        }
        if let Some(offset) = fields.offset {
            self.offset = offset;
        }
    }
}

/// The fields that one lockspace string contains; the name is always there, possibly empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LockspaceFields {
    /// The text before the first colon.
    pub name: Name,
    /// Present when there was a first colon.
    pub host_id: Option<u64>,
    /// Present when there was a second colon; unescaped.
    pub path: Option<Vec<u8>>,
    /// Present when there was a third colon.
    pub offset: Option<u64>,
}

impl From<LockspaceFields> for LockspaceSpec {
    fn from(fields: LockspaceFields) -> Self {
        let mut spec = Self::default();
        spec.merge(fields);
        spec
    }
}

/// A resource: `LOCKSPACE:RESOURCE:PATH:OFFSET[:PATH:OFFSET…][:LVER|:SH]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ResourceSpec {
    /// Name of the lockspace.
    pub lockspace: Name,
    /// Name of the resource.
    pub name: Name,
    /// Where its lease lies; at most four places, none in `LOCKSPACE:RESOURCE`.
    pub disks: Vec<DiskSpec>,
    /// The lease version asked for, if one was given.
    pub lver: Option<u64>,
    /// Whether the lease is wanted, or held, shared.
    pub shared: bool,
}

impl ResourceSpec {
    /// Lockspace and name: what tells one resource from another.
    #[must_use]
    pub fn names(&self) -> (Name, Name) {
        (self.lockspace, self.name)
    }

    /// The library's text form (disk-format.md 12.5): paths escaped, names not, always with a version or `SH` at the end.
    ///
    /// A path whose escaped form does not fit 1023 bytes is cut, as the library cuts it.
    ///
    /// # Errors
    /// More than 4399 bytes.
    pub fn to_text(&self) -> Result<Vec<u8>, TextError> {
        let mut text = Vec::new();
        text.extend_from_slice(self.lockspace.as_bytes());
        text.push(b':');
        text.extend_from_slice(self.name.as_bytes());
        for disk in &self.disks {
            text.push(b':');
            text.extend_from_slice(&path::export(&disk.path, PATH_BYTES));
            text.extend_from_slice(format!(":{}", disk.offset).as_bytes());
        }
        if self.shared {
            text.extend_from_slice(b":SH");
        } else {
            text.extend_from_slice(format!(":{}", self.lver.unwrap_or(0)).as_bytes());
        }
        if text.len() >= RESOURCE_STRING_BYTES {
            return Err(TextError::TooLong { found: text.len() });
        }
        Ok(text)
    }
}

/// A resource index: `LOCKSPACE:PATH:OFFSET`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct RindexSpec {
    /// Name of the lockspace.
    pub lockspace: Name,
    /// Where the index lies.
    pub disk: DiskSpec,
}

/// An entry of a resource index: `NAME`, `NAME:OFFSET` or `:OFFSET`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct RentrySpec {
    /// Empty when not given.
    pub name: Name,
    /// 0 when not given.
    pub offset: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::DISKS_MAX;

    fn name(text: &str) -> Name {
        Name::new(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_version_or_sh_always_ends_the_text() {
        let mut res = ResourceSpec {
            lockspace: name("ls"),
            name: name("res"),
            disks: vec![DiskSpec { path: b"/p x:y".to_vec(), offset: 8 }],
            ..ResourceSpec::default()
        };
        assert_eq!(res.to_text().unwrap(), br"ls:res:/p\ x\:y:8:0");
        res.lver = Some(7);
        assert_eq!(res.to_text().unwrap(), br"ls:res:/p\ x\:y:8:7");
        res.shared = true;
        assert_eq!(res.to_text().unwrap(), br"ls:res:/p\ x\:y:8:SH");
        res.disks.clear();
        assert_eq!(res.to_text().unwrap(), b"ls:res:SH");
    }

    #[test]
    fn names_of_48_bytes_end_there() {
        let long = "n".repeat(48);
        let res = ResourceSpec { lockspace: name(&long), name: name(&long), ..ResourceSpec::default() };
        assert_eq!(res.to_text().unwrap(), format!("{long}:{long}:0").as_bytes());
    }

    #[test]
    fn the_largest_resource_fits_and_the_limit_holds() {
        let disk = DiskSpec { path: vec![b':'; 2000], offset: u64::MAX };
        let mut res = ResourceSpec {
            lockspace: name(&"l".repeat(48)),
            name: name(&"r".repeat(48)),
            disks: vec![disk.clone(); DISKS_MAX],
            lver: Some(u64::MAX),
            shared: false,
        };
        // Escaped paths are cut at 1022 bytes here, a whole number of escapes.
        assert_eq!(res.to_text().unwrap().len(), 48 + 1 + 48 + 4 * (1 + 1022 + 1 + 20) + 21);
        res.disks.push(disk);
        let error = res.to_text().unwrap_err();
        assert!(matches!(error, TextError::TooLong { .. }), "{error}");
        assert_eq!(error.code(), -22, "what the library returns");
    }

    #[test]
    fn resources_are_told_apart_by_lockspace_and_name() {
        let res = ResourceSpec { lockspace: name("ls"), name: name("res"), ..ResourceSpec::default() };
        assert_eq!(res.names(), (name("ls"), name("res")));
    }
}
