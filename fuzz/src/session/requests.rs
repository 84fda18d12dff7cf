//! Requests as clients might send them.

use sanlock_wire::types::{HostEvent, Killpath, Lockspace, Options, Rentry, Resource, ResourceSpec, Rindex};
use sanlock_wire::{Command, RequestBody};

use crate::data::Data;

/// A request as a client might send it, mostly well-formed.
pub(super) fn request(data: &mut Data<'_>) -> Vec<u8> {
    let command = match data.byte() {
        common @ 0..=127 => [
            Command::Acquire,
            Command::Release,
            Command::Convert,
            Command::Acquire,
            Command::AddLockspace,
            Command::RemLockspace,
            Command::Register,
            Command::Inquire,
        ]
        .get(usize::from(common % 8))
        .copied()
        .unwrap_or(Command::Version),
        _ => data.pick(Command::ALL).unwrap_or(Command::Version),
    };
    let name =
        |data: &mut Data<'_>, names: &[&str]| sanlock_wire::Name::truncated(data.pick(names).unwrap_or("ls"));
    let disk = sanlock_wire::Disk::new(b"/d", 1 << 20).unwrap_or(sanlock_wire::Disk::EMPTY);
    let spaces = ["ls", "two", "ls", ""];
    let resource = |data: &mut Data<'_>| {
        let mut resource = Resource::new(name(data, &spaces), name(data, &["a", "b", "c", "d", "e", ""]));
        resource.flags = u32::from(data.byte()).into();
        resource.lver = u64::from(data.byte()).into();
        resource.data32 = u32::from(data.byte()).into();
        resource
    };
    let spec = |data: &mut Data<'_>| ResourceSpec::new(resource(data), vec![disk]).ok();
    let lockspace = |data: &mut Data<'_>| {
        let id = [1, 1, 2, 0, 2001].get(data.below(5)).copied().unwrap_or(1);
        Box::new(Lockspace::new(name(data, &spaces), id, disk))
    };
    let mut count = 0;
    let body = match command {
        Command::Acquire => {
            let number = 1 + data.below(3);
            let resources: Vec<ResourceSpec> = (0..number).filter_map(|_| spec(data)).collect();
            count = u32::try_from(resources.len()).unwrap_or(0);
            RequestBody::Acquire { resources, options: Options::new(sanlock_wire::Name::truncated("o")) }
        }
        Command::Release => {
            let number = 1 + data.below(2);
            let resources: Vec<Resource> = (0..number).map(|_| resource(data)).collect();
            count = u32::try_from(resources.len()).unwrap_or(0);
            RequestBody::Release(resources)
        }
        Command::AddLockspace => RequestBody::AddLockspace(lockspace(data)),
        Command::RemLockspace => RequestBody::RemLockspace(lockspace(data)),
        Command::InqLockspace => RequestBody::InqLockspace(lockspace(data)),
        Command::ExamineLockspace => RequestBody::ExamineLockspace(lockspace(data)),
        Command::ExamineResource => RequestBody::ExamineResource(resource(data)),
        Command::SetConfig => RequestBody::SetConfig(lockspace(data)),
        Command::EndEvent => RequestBody::EndEvent(lockspace(data)),
        Command::RegEvent | Command::SetEvent => {
            let lockspace = lockspace(data);
            let event = HostEvent {
                host_id: data.number().into(),
                generation: data.number().into(),
                event: data.number().into(),
                data: 7.into(),
            };
            if command == Command::RegEvent {
                RequestBody::RegEvent { lockspace, event }
            } else {
                RequestBody::SetEvent { lockspace, event }
            }
        }
        Command::Convert => RequestBody::Convert(resource(data)),
        Command::SetLvb => {
            let resource = resource(data);
            let len = 1 + usize::from(data.byte()) * 3;
            RequestBody::SetLvb { resource, lvb: vec![7; len] }
        }
        Command::GetLvb => RequestBody::GetLvb(resource(data)),
        Command::Killpath => RequestBody::Killpath(Box::new(Killpath::new(b"/bin/k", data.piece()))),
        Command::Request => match spec(data) {
            Some(spec) => RequestBody::Request(spec),
            None => RequestBody::Version,
        },
        Command::LookupRindex | Command::CreateResource | Command::DeleteResource | Command::UpdateRindex => {
            let index = Box::new(Rindex::new(name(data, &spaces), disk));
            let entry = Rentry::new(name(data, &["a", "b"]), 0);
            match command {
                Command::LookupRindex => RequestBody::LookupRindex(index, entry),
                Command::CreateResource => RequestBody::CreateResource(index, entry),
                Command::DeleteResource => RequestBody::DeleteResource(index, entry),
                _ => RequestBody::UpdateRindex(index, entry),
            }
        }
        Command::Register => RequestBody::Register,
        Command::Inquire => RequestBody::Inquire,
        Command::Restrict => RequestBody::Restrict,
        Command::Shutdown => RequestBody::Shutdown,
        Command::ShutdownWait => RequestBody::ShutdownWait,
        _ => RequestBody::Version,
    };
    let flags = u32::from(data.byte());
    let target = match data.byte() {
        pid @ 0..=63 => 100 + u32::from(pid % 6),
        _ => u32::MAX,
    };
    let number = match command {
        Command::Acquire | Command::Release => count,
        _ => u32::from(data.byte()),
    };
    let mut payload = Vec::new();
    body.encode(&mut payload);
    // What cannot be put together here is sent as VERSION.
    let command = if matches!(body, RequestBody::Version) { Command::Version } else { command };
    let target = if command == Command::GetLvb { u32::from(data.byte()) } else { target };
    let header = sanlock_wire::Header::request(command, flags, payload.len(), number, target);
    [header.encode().as_slice(), &payload].concat()
}
