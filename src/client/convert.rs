//! Between arguments and what travels to the daemon.

use crate::cli::command::AcquireArgs;
use crate::cli::given::Sizes;
use sanlock_client::wire::flags::{LockspaceFlags, ResourceFlags};
use sanlock_client::wire::{Disk, DiskPath, Lockspace, Name, PathError, Resource, ResourceSpec};
use sanlock_client::{ClientError, wire};
use sanlock_lease::geometry::{AlignSize, SectorSize};
use sanlock_lease::limits::PATH_BYTES;
use sanlock_lease::text::{self, DiskSpec, LockspaceSpec};

pub(super) fn name(name: sanlock_lease::name::Name) -> Name {
    Name::from_raw(name.to_field())
}

pub(super) fn disk(spec: &DiskSpec) -> Result<Disk, PathError> {
    Disk::new(&spec.path, spec.offset)
}

pub(super) fn lockspace(spec: &LockspaceSpec) -> Result<Lockspace, PathError> {
    Ok(Lockspace::new(name(spec.name), spec.host_id, Disk::new(&spec.path, spec.offset)?))
}

/// A lockspace with the sizes that were asked for.
pub(super) fn sized_lockspace(spec: &LockspaceSpec, sizes: Sizes) -> Result<Lockspace, PathError> {
    let mut lockspace = lockspace(spec)?;
    let mut flags = LockspaceFlags::empty();
    flags |= match sizes.sector {
        None => LockspaceFlags::empty(),
        Some(SectorSize::B512) => LockspaceFlags::SECTOR512,
        Some(SectorSize::B4096) => LockspaceFlags::SECTOR4K,
    };
    flags |= match sizes.align {
        None => LockspaceFlags::empty(),
        Some(AlignSize::M1) => LockspaceFlags::ALIGN1M,
        Some(AlignSize::M2) => LockspaceFlags::ALIGN2M,
        Some(AlignSize::M4) => LockspaceFlags::ALIGN4M,
        Some(AlignSize::M8) => LockspaceFlags::ALIGN8M,
    };
    lockspace.flags = flags.bits().into();
    Ok(lockspace)
}

/// A resource with the sizes that were asked for.
pub(super) fn sized_resource(spec: &text::ResourceSpec, sizes: Sizes) -> Result<ResourceSpec, ClientError> {
    let sector = match sizes.sector {
        None => ResourceFlags::empty(),
        Some(SectorSize::B512) => ResourceFlags::SECTOR512,
        Some(SectorSize::B4096) => ResourceFlags::SECTOR4K,
    };
    let align = match sizes.align {
        None => ResourceFlags::empty(),
        Some(AlignSize::M1) => ResourceFlags::ALIGN1M,
        Some(AlignSize::M2) => ResourceFlags::ALIGN2M,
        Some(AlignSize::M4) => ResourceFlags::ALIGN4M,
        Some(AlignSize::M8) => ResourceFlags::ALIGN8M,
    };
    with_flags(spec, sector | align, 0)
}

/// The resources of an acquire.
pub(super) fn acquire(args: &AcquireArgs) -> Result<Vec<ResourceSpec>, ClientError> {
    let mut flags = ResourceFlags::empty();
    flags.set(ResourceFlags::PERSISTENT, args.persistent);
    flags.set(ResourceFlags::NUM_HOSTS, args.num_hosts != 0);
    args.resources.iter().map(|spec| with_flags(spec, flags, args.num_hosts)).collect()
}

/// The resource of a request, with the version asked for.
pub(super) fn request(spec: &text::ResourceSpec) -> Result<ResourceSpec, ClientError> {
    with_flags(spec, ResourceFlags::empty(), 0)
}

fn with_flags(
    spec: &text::ResourceSpec,
    mut flags: ResourceFlags,
    data32: u32,
) -> Result<ResourceSpec, ClientError> {
    flags.set(ResourceFlags::LVER, spec.lver.is_some());
    flags.set(ResourceFlags::SHARED, spec.shared);
    let resource = Resource {
        lver: spec.lver.unwrap_or(0).into(),
        data32: data32.into(),
        flags: flags.bits().into(),
        ..names(spec)
    };
    let disks = spec.disks.iter().map(disk).collect::<Result<Vec<_>, _>>()?;
    // The parser allows no more disks than the protocol.
    ResourceSpec::new(resource, disks).map_err(|_| ClientError::NoDisks)
}

/// Only the names of a resource.
pub(super) fn names(spec: &text::ResourceSpec) -> Resource {
    Resource::new(name(spec.lockspace), name(spec.name))
}

/// The sizes that a reply's flags state, in bytes; 0 where none is stated. Lockspaces and resources use the same bits.
pub(super) fn sizes_of(flags: u32) -> (u32, u64) {
    let flags = ResourceFlags::from_bits_truncate(flags);
    let sector = if flags.contains(ResourceFlags::SECTOR512) {
        SectorSize::B512.bytes()
    } else if flags.contains(ResourceFlags::SECTOR4K) {
        SectorSize::B4096.bytes()
    } else {
        0
    };
    (sector, AlignSize::from_flags(flags.bits()).map_or(0, AlignSize::bytes))
}

/// The bytes of a path from the daemon; one without NUL fills its field.
pub(super) fn path_bytes(path: &DiskPath) -> &[u8] {
    path.path().unwrap_or_else(|_| path.as_raw())
}

/// `NAME:HOST_ID:PATH:OFFSET`, the path escaped or as it is (command-line.md 4.6).
pub(super) fn lockspace_text(lockspace: &Lockspace, escaped: bool) -> Vec<u8> {
    let mut out = lockspace.name.name_bytes().to_vec();
    out.extend_from_slice(format!(":{}:", lockspace.host_id).as_bytes());
    let path = path_bytes(&lockspace.host_id_disk.path);
    if escaped {
        out.extend_from_slice(&text::path::export(path, PATH_BYTES));
    } else {
        out.extend_from_slice(path);
    }
    out.extend_from_slice(format!(":{}", lockspace.host_id_disk.offset).as_bytes());
    out
}

/// `LS:RES:PATH:OFFSET…:LVER`, or `:SH` at the end.
pub(super) fn resource_text(names: &Resource, disks: &[wire::Disk], lver: u64, shared: bool) -> Vec<u8> {
    let mut out = names.lockspace_name.name_bytes().to_vec();
    out.push(b':');
    out.extend_from_slice(names.name.name_bytes());
    for disk in disks {
        out.push(b':');
        out.extend_from_slice(&text::path::export(path_bytes(&disk.path), PATH_BYTES));
        out.extend_from_slice(format!(":{}", disk.offset).as_bytes());
    }
    if shared {
        out.extend_from_slice(b":SH");
    } else {
        out.extend_from_slice(format!(":{lver}").as_bytes());
    }
    out
}
