//! Between the socket's structures and the manager's.

use sanlock_lease::name::Name;
use sanlock_lease::text::{DiskSpec, LockspaceSpec, ResourceSpec};
use sanlock_manager::{AcquireFlags, OrphanUse, ReleaseWhat, ResourceRequest, Target};
use sanlock_wire::flags::{AcquireFlags as WireAcquire, ReleaseFlags, ResourceFlags};
use sanlock_wire::header::Target as WireTarget;
use sanlock_wire::strings::{StringError, args_to_state};
use sanlock_wire::types::TooManyDisks;
use sanlock_wire::{PathError, code, name, types};

pub(crate) fn lease_name(wire: &name::Name) -> Name {
    Name::from_field(wire.as_raw())
}

pub(crate) fn wire_name(lease: &Name) -> name::Name {
    name::Name::from_raw(lease.to_field())
}

/// # Errors
/// A path without NUL.
pub(crate) fn lockspace(wire: &types::Lockspace) -> Result<LockspaceSpec, PathError> {
    let disk = disk(&wire.host_id_disk)?;
    let (name, host_id) = (lease_name(&wire.name), wire.host_id.get());
    Ok(LockspaceSpec { name, host_id, path: disk.path, offset: disk.offset })
}

/// # Errors
/// A path without NUL.
pub(crate) fn disk(wire: &types::Disk) -> Result<DiskSpec, PathError> {
    Ok(DiskSpec { path: wire.path.path()?.to_vec(), offset: wire.offset.get() })
}

pub(crate) fn wire_lockspace(spec: &LockspaceSpec) -> types::Lockspace {
    let disk = types::Disk::new(&spec.path, spec.offset).unwrap_or(types::Disk::EMPTY);
    types::Lockspace::new(wire_name(&spec.name), spec.host_id, disk)
}

/// A resource with lver 0, as state records carry it.
///
/// # Errors
/// More than 4 disks, which no request that was accepted has.
pub(crate) fn wire_resource(spec: &ResourceSpec) -> Result<types::ResourceSpec, TooManyDisks> {
    let mut resource = types::Resource::new(wire_name(&spec.lockspace), wire_name(&spec.name));
    if spec.shared {
        resource.flags = ResourceFlags::SHARED.bits().into();
    }
    let disks = spec
        .disks
        .iter()
        .map(|disk| types::Disk::new(&disk.path, disk.offset).unwrap_or(types::Disk::EMPTY))
        .collect();
    types::ResourceSpec::new(resource, disks)
}

/// One resource of an ACQUIRE (socket-protocol.md 7.7 step 4).
///
/// # Errors
/// A path without NUL.
pub(crate) fn resource_request(wire: &types::ResourceSpec) -> Result<ResourceRequest, PathError> {
    let resource = wire.resource();
    let flags = ResourceFlags::from_bits_truncate(resource.flags.get());
    let spec = ResourceSpec {
        lockspace: lease_name(&resource.lockspace_name),
        name: lease_name(&resource.name),
        disks: wire.disks().iter().map(disk).collect::<Result<_, _>>()?,
        lver: flags.contains(ResourceFlags::LVER).then(|| resource.lver.get()),
        shared: flags.contains(ResourceFlags::SHARED),
    };
    Ok(ResourceRequest {
        spec,
        persistent: flags.contains(ResourceFlags::PERSISTENT),
        num_hosts: flags.contains(ResourceFlags::NUM_HOSTS).then(|| u64::from(resource.data32.get())),
    })
}

pub(crate) fn acquire_flags(cmd_flags: u32) -> AcquireFlags {
    let flags = WireAcquire::from_bits_truncate(cmd_flags);
    AcquireFlags {
        lvb: flags.contains(WireAcquire::LVB),
        orphan: if flags.contains(WireAcquire::ORPHAN_ONLY) {
            OrphanUse::Only
        } else if flags.contains(WireAcquire::ORPHAN) {
            OrphanUse::Adopt
        } else {
            OrphanUse::Refuse
        },
        owner_nowait: flags.contains(WireAcquire::OWNER_NOWAIT),
    }
}

/// Lockspace and name.
pub(crate) fn resource_name(resource: &types::Resource) -> (Name, Name) {
    (lease_name(&resource.lockspace_name), lease_name(&resource.name))
}

/// What a RELEASE is to give up: the first of the flags ALL, ORPHAN, RENAME decides (socket-protocol.md 7.8).
///
/// # Errors
/// Fewer resources than the flags need, which the decoder lets nobody send.
pub(crate) fn release_what(cmd_flags: u32, resources: &[types::Resource]) -> Result<ReleaseWhat, i32> {
    let flags = ReleaseFlags::from_bits_truncate(cmd_flags);
    let mut names = resources.iter().map(resource_name);
    if flags.contains(ReleaseFlags::ALL) {
        Ok(ReleaseWhat::All)
    } else if flags.contains(ReleaseFlags::ORPHAN) {
        let (lockspace, name) = names.next().ok_or(code::EINVAL)?;
        Ok(ReleaseWhat::Orphans { lockspace, name: Some(name).filter(|name| !name.is_empty()) })
    } else if flags.contains(ReleaseFlags::RENAME) {
        let (from, (_, to)) = names.next().zip(names.next()).ok_or(code::EINVAL)?;
        Ok(ReleaseWhat::Renamed { from, to })
    } else {
        Ok(ReleaseWhat::Named(names.collect()))
    }
}

pub(crate) fn target(wire: WireTarget) -> Target {
    match wire {
        WireTarget::Connection => Target::Own,
        WireTarget::Pid(pid) => Target::Pid(pid),
    }
}

/// The string of INQUIRE (socket-protocol.md 7.9).
///
/// # Errors
/// An item longer than any client accepts.
pub(crate) fn state_string(held: &[ResourceSpec]) -> Result<Vec<u8>, StringError> {
    let mut specs = Vec::with_capacity(held.len());
    for spec in held {
        let mut wire = wire_resource(spec).map_err(|e| StringError::TooManyDisks { count: e.count })?;
        let mut resource = *wire.resource();
        resource.lver = spec.lver.unwrap_or(0).into();
        wire.set_resource(resource);
        specs.push(wire);
    }
    args_to_state(&specs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_with_a_version_and_flags_arrives() {
        let mut resource = types::Resource::new(name::Name::truncated("LS"), name::Name::truncated("R"));
        resource.lver = 7.into();
        resource.data32 = 9.into();
        let disk = types::Disk::new("/a b", 1 << 20).unwrap();
        let request = |flags: ResourceFlags| {
            resource_request(
                &types::ResourceSpec::new(
                    types::Resource { flags: flags.bits().into(), ..resource },
                    vec![disk],
                )
                .unwrap(),
            )
            .unwrap()
        };
        let plain = request(ResourceFlags::empty());
        assert_eq!(
            (plain.spec.lver, plain.num_hosts, plain.persistent, plain.spec.shared),
            (None, None, false, false)
        );
        let full = request(
            ResourceFlags::LVER
                | ResourceFlags::NUM_HOSTS
                | ResourceFlags::PERSISTENT
                | ResourceFlags::SHARED,
        );
        assert_eq!(
            (full.spec.lver, full.num_hosts, full.persistent, full.spec.shared),
            (Some(7), Some(9), true, true)
        );
        assert_eq!(full.spec.disks, [DiskSpec { path: b"/a b".to_vec(), offset: 1 << 20 }]);
    }

    #[test]
    fn held_resources_as_a_string_with_blanks_escaped() {
        let spec = |name: &[u8], path: &[u8]| ResourceSpec {
            lockspace: Name::new(b"LS").unwrap(),
            name: Name::new(name).unwrap(),
            disks: vec![DiskSpec { path: path.to_vec(), offset: 5 }],
            lver: Some(3),
            shared: false,
        };
        let text = state_string(&[spec(b"R1", b"/a"), spec(b"R2", b"/b c")]).unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), r"LS:R1:/a:5:3 LS:R2:/b\ c:5:3");
    }

    #[test]
    fn a_path_without_end_is_refused() {
        let mut disk = types::Disk::EMPTY;
        disk.path = name::DiskPath::from_raw([b'a'; 1024]);
        assert!(lockspace(&types::Lockspace::new(name::Name::EMPTY, 1, disk)).is_err());
    }
}
