//! The structures of payloads (socket-protocol.md 4, x86_64 layout), one Rust struct per C struct.
//!
//! The struct is the format: little-endian fields, C's padding written out, sizes and offsets asserted below. Values made
//! here or decoded by this crate always have zero padding.

use core::mem::{offset_of, size_of};

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::limits::{HEADER_LEN, KILLPATH_LEN, MAX_DISKS};
use crate::name::{DiskPath, Name, PathError};

macro_rules! wire_struct {
    ($(#[$doc:meta])* $vis:vis struct $name:ident { $($body:tt)* } size $size:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
        #[repr(C)]
        $vis struct $name { $($body)* }
        const _: () = assert!(size_of::<$name>() == $size);
        impl $name {
            /// Size on the wire in bytes.
            $vis const SIZE: usize = $size;
        }
    };
}

/// Structures that a peer may send: any bytes are one; padding is cleared so that it is never passed on.
pub(crate) trait WireStruct: FromBytes + IntoBytes + Immutable + KnownLayout {
    fn clear_padding(&mut self) {}
}

wire_struct! {
    /// `sanlk_disk`: where a lease area begins.
    pub struct Disk {
        /// File or block device.
        pub path: DiskPath,
        /// Offset of the area in bytes.
        pub offset: U64,
        /// Ignored in requests. In STATUS records: the daemon's sector size.
        pub pad1: U32,
        /// Ignored in requests. In STATUS records: the daemon's descriptor number.
        pub pad2: U32,
    } size 1040
}
const _: () = assert!(offset_of!(Disk, offset) == 1024);
const _: () = assert!(offset_of!(Disk, pad2) == 1036);
impl WireStruct for Disk {}

impl Disk {
    /// No path, offset 0.
    pub const EMPTY: Self =
        Self { path: DiskPath::EMPTY, offset: U64::ZERO, pad1: U32::ZERO, pad2: U32::ZERO };

    /// A disk at `offset` bytes of `path`.
    ///
    /// # Errors
    /// [`PathError`] when the path is above 1023 bytes or has a NUL inside.
    pub fn new(path: impl AsRef<[u8]>, offset: u64) -> Result<Self, PathError> {
        Ok(Self { path: DiskPath::new(path)?, offset: offset.into(), ..Self::EMPTY })
    }
}

wire_struct! {
    /// `sanlk_resource` without its disks.
    pub struct Resource {
        /// Name of the lockspace.
        pub lockspace_name: Name,
        /// Name of the resource.
        pub name: Name,
        /// Lease version; in requests only with `RES_LVER`.
        pub lver: U64,
        /// Unused.
        pub data64: U64,
        /// New number of hosts, only with `RES_NUM_HOSTS`.
        pub data32: U32,
        /// Unused.
        pub unused: U32,
        /// [`ResourceFlags`](crate::flags::ResourceFlags).
        pub flags: U32,
        /// How many disks follow.
        pub num_disks: U32,
    } size 128
}
const _: () = assert!(offset_of!(Resource, lver) == 96);
const _: () = assert!(offset_of!(Resource, flags) == 120);
const _: () = assert!(offset_of!(Resource, num_disks) == 124);
impl WireStruct for Resource {}

impl Resource {
    /// A resource of these names; everything else 0.
    #[must_use]
    pub const fn new(lockspace_name: Name, name: Name) -> Self {
        Self {
            lockspace_name,
            name,
            lver: U64::ZERO,
            data64: U64::ZERO,
            data32: U32::ZERO,
            unused: U32::ZERO,
            flags: U32::ZERO,
            num_disks: U32::ZERO,
        }
    }
}

/// A resource with the disks that follow it on the wire.
///
/// `num_disks` always equals the number of disks, which is at most 4. No disk at all is possible (INQUIRE strings may
/// name such a resource); commands that need one refuse it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceSpec {
    resource: Resource,
    disks: Vec<Disk>,
}

/// More disks than a resource can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("resource with {count} disks, at most {MAX_DISKS} are possible")]
pub struct TooManyDisks {
    /// Disks given.
    pub count: usize,
}

impl ResourceSpec {
    /// Joins a resource and its disks; `num_disks` is set.
    ///
    /// # Errors
    /// [`TooManyDisks`] above 4.
    pub fn new(mut resource: Resource, disks: Vec<Disk>) -> Result<Self, TooManyDisks> {
        match u32::try_from(disks.len()) {
            Ok(count) if disks.len() <= MAX_DISKS => resource.num_disks = count.into(),
            _ => return Err(TooManyDisks { count: disks.len() }),
        }
        Ok(Self { resource, disks })
    }

    /// The names, flags and numbers.
    #[must_use]
    pub const fn resource(&self) -> &Resource {
        &self.resource
    }

    /// The disks, at most 4.
    #[must_use]
    pub fn disks(&self) -> &[Disk] {
        &self.disks
    }

    /// Replaces names, flags and numbers; `num_disks` stays what it is.
    pub fn set_resource(&mut self, resource: Resource) {
        self.resource = Resource { num_disks: self.resource.num_disks, ..resource };
    }

    /// Bytes on the wire.
    #[must_use]
    pub fn wire_len(&self) -> usize {
        Resource::SIZE + self.disks.len() * Disk::SIZE
    }

    /// Appends the resource and its disks.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.resource.as_bytes());
        out.extend_from_slice(self.disks.as_bytes());
    }
}

wire_struct! {
    /// `sanlk_lockspace`.
    pub struct Lockspace {
        /// Name of the lockspace.
        pub name: Name,
        /// The host's number in it, 1 to 2000; 0 is a wildcard in some commands.
        pub host_id: U64,
        /// [`LockspaceFlags`](crate::flags::LockspaceFlags).
        pub flags: U32,
        pad: U32,
        /// Where its host_id leases are.
        pub host_id_disk: Disk,
    } size 1104
}
const _: () = assert!(offset_of!(Lockspace, host_id) == 48);
const _: () = assert!(offset_of!(Lockspace, pad) == 60);
const _: () = assert!(offset_of!(Lockspace, host_id_disk) == 64);
impl WireStruct for Lockspace {
    fn clear_padding(&mut self) {
        self.pad = U32::ZERO;
    }
}

impl Lockspace {
    /// A lockspace with flags 0.
    #[must_use]
    pub fn new(name: Name, host_id: u64, host_id_disk: Disk) -> Self {
        Self { name, host_id: host_id.into(), flags: U32::ZERO, pad: U32::ZERO, host_id_disk }
    }

    /// Only the name, as commands that look at nothing else get it.
    #[must_use]
    pub fn named(name: Name) -> Self {
        Self::new(name, 0, Disk::EMPTY)
    }
}

wire_struct! {
    /// `sanlk_options` of ACQUIRE. `flags` and `len` are ignored and nothing follows it.
    pub struct Options {
        /// Shown by STATUS as the connection's name.
        pub owner_name: Name,
        /// Ignored.
        pub flags: U32,
        /// Ignored.
        pub len: U32,
    } size 56
}
impl WireStruct for Options {}

impl Options {
    /// Only an owner name.
    #[must_use]
    pub const fn new(owner_name: Name) -> Self {
        Self { owner_name, flags: U32::ZERO, len: U32::ZERO }
    }
}

wire_struct! {
    /// `sanlk_host`.
    pub struct Host {
        /// Number of the host in its lockspace.
        pub host_id: U64,
        /// How often the host joined.
        pub generation: U64,
        /// That host's own monotonic seconds of its last renewal; only good for comparing with itself.
        pub timestamp: U64,
        /// That host's io timeout in seconds.
        pub io_timeout: U32,
        /// [`HostState`](crate::flags::HostState) in the low four bits.
        pub flags: U32,
    } size 32
}
impl WireStruct for Host {}

wire_struct! {
    /// `sanlk_host_event`.
    pub struct HostEvent {
        /// SET_EVENT: the receiver.
        pub host_id: U64,
        /// Generation of the receiver.
        pub generation: U64,
        /// Meaning is up to the users.
        pub event: U64,
        /// Meaning is up to the users.
        pub data: U64,
    } size 32
}
impl WireStruct for HostEvent {}

impl HostEvent {
    /// All zero.
    pub const EMPTY: Self =
        Self { host_id: U64::ZERO, generation: U64::ZERO, event: U64::ZERO, data: U64::ZERO };
}

wire_struct! {
    /// `sanlk_rindex`: where a resource index is.
    pub struct Rindex {
        /// [`RindexFlags`](crate::flags::RindexFlags).
        pub flags: U32,
        /// FORMAT_RINDEX: number of entries, 0 for the default.
        pub max_resources: U32,
        /// Unused.
        pub unused: U64,
        /// Name of the lockspace.
        pub lockspace_name: Name,
        /// Where the index begins.
        pub disk: Disk,
    } size 1104
}
const _: () = assert!(offset_of!(Rindex, lockspace_name) == 16);
const _: () = assert!(offset_of!(Rindex, disk) == 64);
impl WireStruct for Rindex {}

impl Rindex {
    /// An index with flags and sizes 0.
    #[must_use]
    pub const fn new(lockspace_name: Name, disk: Disk) -> Self {
        Self { flags: U32::ZERO, max_resources: U32::ZERO, unused: U64::ZERO, lockspace_name, disk }
    }
}

wire_struct! {
    /// `sanlk_rentry`: one entry of a resource index.
    pub struct Rentry {
        /// Name of the resource.
        pub name: Name,
        /// Offset of its lease area in bytes.
        pub offset: U64,
        /// Unused.
        pub flags: U32,
        /// Unused.
        pub unused: U32,
    } size 64
}
const _: () = assert!(offset_of!(Rentry, offset) == 48);
impl WireStruct for Rentry {}

impl Rentry {
    /// An entry with flags 0.
    #[must_use]
    pub fn new(name: Name, offset: u64) -> Self {
        Self { name, offset: offset.into(), flags: U32::ZERO, unused: U32::ZERO }
    }
}

wire_struct! {
    /// The KILLPATH payload. [`Killpath::path`] and [`Killpath::args`] force the last byte to NUL (7.16).
    pub struct Killpath {
        path: [u8; KILLPATH_LEN],
        args: [u8; KILLPATH_LEN],
    } size 256
}
impl WireStruct for Killpath {}

impl Killpath {
    /// Each string is cut to 126 bytes, as the C library does (11.4).
    #[must_use]
    pub fn new(path: impl AsRef<[u8]>, args: impl AsRef<[u8]>) -> Self {
        fn field(text: &[u8]) -> [u8; KILLPATH_LEN] {
            let mut raw = [0; KILLPATH_LEN];
            for (dst, &src) in raw.iter_mut().take(KILLPATH_LEN - 2).zip(text.iter().take_while(|&&b| b != 0))
            {
                *dst = src;
            }
            raw
        }
        Self { path: field(path.as_ref()), args: field(args.as_ref()) }
    }

    /// The program, up to the first NUL, at most 127 bytes.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        up_to_nul(&self.path)
    }

    /// The argument string, up to the first NUL, at most 127 bytes.
    #[must_use]
    pub fn args(&self) -> &[u8] {
        up_to_nul(&self.args)
    }
}

fn up_to_nul(field: &[u8; KILLPATH_LEN]) -> &[u8] {
    let end = field.iter().take(KILLPATH_LEN - 1).take_while(|&&b| b != 0).count();
    field.get(..end).unwrap_or(&[])
}

wire_struct! {
    /// `sanlk_state`, the fixed part of a state record (8).
    pub(crate) struct StateHeader {
        pub(crate) kind: U32,
        pub(crate) flags: U32,
        pub(crate) data32: U32,
        pad1: U32,
        pub(crate) data64: U64,
        pub(crate) name: Name,
        pub(crate) str_len: U32,
        pad2: U32,
    } size 80
}
const _: () = assert!(offset_of!(StateHeader, data64) == 16);
const _: () = assert!(offset_of!(StateHeader, name) == 24);
const _: () = assert!(offset_of!(StateHeader, str_len) == 72);
impl WireStruct for StateHeader {}

impl StateHeader {
    pub(crate) fn new(kind: u32, flags: u32, data32: u32, data64: u64, name: Name, str_len: u32) -> Self {
        Self {
            kind: kind.into(),
            flags: flags.into(),
            data32: data32.into(),
            pad1: U32::ZERO,
            data64: data64.into(),
            name,
            str_len: str_len.into(),
            pad2: U32::ZERO,
        }
    }
}

wire_struct! {
    /// A message of an event stream (9), without its header.
    pub struct EventMessage {
        /// host_id = the receiver; event and data as the sender wrote them.
        pub event: HostEvent,
        /// The sender.
        pub from_host_id: U64,
        /// Generation of the sender.
        pub from_generation: U64,
    } size 48
}
impl WireStruct for EventMessage {}

impl EventMessage {
    /// Size of the whole message.
    pub const MESSAGE_LEN: usize = HEADER_LEN + Self::SIZE;
    /// `cmd` of an event message (GET_EVENT).
    pub const CMD: u32 = 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_replaced_under_the_disks_it_has() {
        let named = |name| Resource::new(Name::truncated("LS"), Name::truncated(name));
        let mut spec = ResourceSpec::new(named("R"), vec![Disk::EMPTY; 3]).unwrap();
        spec.set_resource(named("S"));
        assert_eq!((spec.resource().name, spec.resource().num_disks.get()), (Name::truncated("S"), 3));
        assert_eq!(spec.disks().len(), 3);
    }

    #[test]
    fn killpath_is_cut_like_the_library_does() {
        let long = [b'k'; 200];
        let payload = Killpath::new(long, "a b");
        assert_eq!(payload.path().len(), 126);
        assert_eq!(payload.args(), b"a b");
        let unterminated: Killpath = zerocopy::transmute!([b'x'; 256]);
        assert_eq!(unterminated.path().len(), 127);
        assert_eq!(unterminated.args().len(), 127);
    }

    #[test]
    fn a_resource_counts_its_disks() {
        let resource = Resource::new(Name::truncated("LS"), Name::truncated("R"));
        let disk = Disk::new("/d", 5).unwrap();
        let spec = ResourceSpec::new(resource, vec![disk; 4]).unwrap();
        assert_eq!(spec.resource().num_disks.get(), 4);
        assert_eq!(ResourceSpec::new(resource, vec![disk; 5]), Err(TooManyDisks { count: 5 }));
        let mut bytes = Vec::new();
        spec.encode(&mut bytes);
        assert_eq!(bytes.len(), spec.wire_len());
    }
}
