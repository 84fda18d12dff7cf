//! What lies on storage, through the daemon: `init`, `read`, `align` (command-line.md 7.7, 7.8, 7.10, 7.21).

use super::convert::{disk, lockspace_text, resource_text, sized_lockspace, sized_resource, sizes_of};
use super::{done, explain, failed, paths, shown};
use crate::cli::command::{InitTarget, ReadTarget};
use crate::cli::given::Sizes;
use crate::output::{FAILURE, note, print, status_of};
use crate::progress::{Signs, show, so_far};
use crate::subject;
use sanlock_client::wire::flags::{ResourceFlags, WriteFlags};
use sanlock_client::wire::{Host, Resource};
use sanlock_client::{Client, ClientError};
use sanlock_lease::text::{DiskSpec, LockspaceSpec, ResourceSpec};

/// The number for "nothing to work on": EINVAL.
const NO_TARGET: i32 = -22;
/// What to give when nothing was.
const GIVE_TARGET: &str = "give a lockspace with its path (-s NAME:ID:PATH:OFFSET) or a resource (-r)";

pub(super) fn init(client: &Client, target: &InitTarget, sizes: Sizes, signs: Signs) -> u8 {
    const ACTION: &str = "init";
    print("init\n");
    let tell = so_far("the daemon writes the leases");
    let outcome = match target {
        InitTarget::Nothing => {
            print(format!("init done {NO_TARGET}\n"));
            note(ACTION, GIVE_TARGET);
            return FAILURE;
        }
        InitTarget::Lockspace { spec, io_timeout } => {
            sized_lockspace(spec, sizes).map_err(ClientError::from).and_then(|lockspace| {
                show(signs, ACTION, tell, || client.write_lockspace(&lockspace, 0, *io_timeout))
            })
        }
        InitTarget::Resource { spec, num_hosts, clear } => {
            let flags = if *clear { WriteFlags::CLEAR } else { WriteFlags::empty() };
            // Daemons take the field of max_hosts for the number of hosts; a daemon that reads the right one finds it there.
            sized_resource(spec, sizes).and_then(|resource| {
                show(signs, ACTION, tell, || client.write_resource(&resource, *num_hosts, *num_hosts, flags))
            })
        }
    };
    done(ACTION, &target.subject(), &outcome)
}

pub(super) fn read(client: &Client, target: &ReadTarget, sizes: Sizes, owners: bool, debug: bool) -> u8 {
    let outcome = match target {
        ReadTarget::Nothing => {
            print(format!("read error {NO_TARGET}\n"));
            note("read", GIVE_TARGET);
            return FAILURE;
        }
        ReadTarget::Lockspace(spec) => read_lockspace(client, spec, sizes, debug),
        ReadTarget::Resource(spec) => read_resource(client, spec, sizes, owners, debug),
    };
    match outcome {
        Ok(text) => shown(&text),
        Err(error) => failed("read", &target.subject(), &error),
    }
}

fn read_lockspace(
    client: &Client,
    spec: &LockspaceSpec,
    sizes: Sizes,
    debug: bool,
) -> Result<Vec<u8>, ClientError> {
    let mut asked = sized_lockspace(spec, sizes)?;
    if asked.host_id.get() == 0 {
        asked.host_id = 1.into();
    }
    let (found, io_timeout) = client.read_lockspace(&asked)?;
    asked.name = found.name;
    let mut out = b"s ".to_vec();
    out.extend_from_slice(&lockspace_text(&asked, false));
    out.push(b'\n');
    if debug {
        let (sector, align) = sizes_of(found.flags.get());
        out.extend_from_slice(
            format!("io_timeout {io_timeout}\nsector_size {sector}\nalign_size {align}\n").as_bytes(),
        );
    }
    Ok(out)
}

fn read_resource(
    client: &Client,
    spec: &ResourceSpec,
    sizes: Sizes,
    owners: bool,
    debug: bool,
) -> Result<Vec<u8>, ClientError> {
    let asked = sized_resource(spec, sizes)?;
    let (found, hosts): (Resource, Vec<Host>) = if owners {
        client.read_resource_owners(&asked)?
    } else {
        (client.read_resource(&asked)?, Vec::new())
    };
    let flags = found.flags.get();
    let shared = spec.shared || ResourceFlags::from_bits_truncate(flags).contains(ResourceFlags::SHARED);
    let mut out = b"r ".to_vec();
    out.extend_from_slice(&resource_text(&found, asked.disks(), found.lver.get(), shared));
    out.push(b'\n');
    if debug {
        let (sector, align) = sizes_of(flags);
        out.extend_from_slice(format!("sector_size {sector}\nalign_size {align}\n").as_bytes());
    }
    for host in hosts {
        out.extend_from_slice(format!("h {} gen {}", host.host_id, host.generation).as_bytes());
        if host.timestamp.get() != 0 {
            out.extend_from_slice(format!(" timestamp {}", host.timestamp).as_bytes());
        }
        out.push(b'\n');
    }
    Ok(out)
}

/// The result is the size, a positive number, so the exit status is 1 (command-line.md 5.3).
pub(super) fn align(client: &Client, spec: &DiskSpec) -> u8 {
    const ACTION: &str = "align";
    print("align\n");
    let outcome = disk(spec).map_err(ClientError::from).and_then(|disk| client.align(&disk));
    let result = match &outcome {
        Ok(bytes) => i64::from(*bytes),
        Err(error) => i64::from(error.result_code()),
    };
    print(format!("{ACTION} done {result}\n"));
    if let Err(error) = &outcome {
        explain(ACTION, &subject::place(spec), error);
        paths::tell(ACTION, &spec.path);
    }
    status_of(i32::from(result != 0))
}
