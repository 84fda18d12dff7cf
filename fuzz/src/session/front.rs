//! What the daemon's front does between the socket and the manager: bytes become requests, requests become commands or answers at
//! once, answers become bytes. As in `daemon/src/front/requests.rs`, without sockets, threads and logs.

use sanlock_lease::delta::Event as HostEvent;
use sanlock_manager::{Command as Order, KillpathProgram, Reply as Answer, SetEventFlags, Setting};
use sanlock_wire::flags::{
    AddFlags, ConfigCommand, ConvertFlags, InqFlags, KillpathFlags, RemFlags, ResourceFlags, RindexCmdFlags,
    SetEventFlags as WireEvent,
};
use sanlock_wire::header::{Header, Target};
use sanlock_wire::reply_decoder::decode_stream;
use sanlock_wire::{Command, Refusal, Reply, Request, RequestBody, Unsupported, code, name, types};

use crate::convert;

/// What a request leads to.
pub(super) enum Way {
    /// The manager is asked.
    Order(Order),
    /// It is answered at once.
    Answer(Box<Reply>),
    /// A thread of its own works on storage and answers.
    Storage,
    /// The connection represents a process from now on; no answer.
    Register,
    /// No answer, and the connection stays.
    Silence,
}

/// The request, judged.
pub(super) fn way(request: &Request) -> Way {
    let header = &request.header;
    let target = convert::target(header.target());
    Way::Order(match &request.body {
        RequestBody::Register => return Way::Register,
        RequestBody::Restrict => Order::Restrict { flags: header.cmd_flags },
        RequestBody::Version => return Way::Answer(Box::new(Reply::version(header, 0x0308_0500))),
        RequestBody::Shutdown => Order::Shutdown { force: header.data != 0 },
        RequestBody::ShutdownWait => Order::ShutdownWait { force: header.data != 0 },
        RequestBody::Status
        | RequestBody::LogDump
        | RequestBody::HostStatus(_)
        | RequestBody::Renewal(_)
        | RequestBody::GetLockspaces
        | RequestBody::GetHosts(_) => return Way::Answer(Box::new(Reply::result(header, code::ENOSPC))),
        RequestBody::AddLockspace(wire)
        | RequestBody::RemLockspace(wire)
        | RequestBody::InqLockspace(wire) => match lockspace(header, &request.body, wire) {
            Some(order) => order,
            None => return Way::Answer(Box::new(Reply::result(header, code::EINVAL))),
        },
        RequestBody::Acquire { resources, options } => {
            match resources.iter().map(convert::resource_request).collect::<Result<Vec<_>, _>>() {
                Ok(resources) => Order::Acquire {
                    target,
                    owner_name: convert::lease_name(&options.owner_name),
                    resources,
                    flags: convert::acquire_flags(header.cmd_flags),
                },
                Err(_) => Order::Refused { target, acquire: true, code: code::EINVAL },
            }
        }
        RequestBody::Release(resources) => match convert::release_what(header.cmd_flags, resources) {
            Ok(what) => Order::Release { target, what },
            Err(code) => Order::Refused { target, acquire: false, code },
        },
        RequestBody::Convert(wire) => Order::Convert {
            target,
            lockspace: convert::lease_name(&wire.lockspace_name),
            name: convert::lease_name(&wire.name),
            shared: ResourceFlags::from_bits_truncate(wire.flags.get()).contains(ResourceFlags::SHARED),
            owner_nowait: ConvertFlags::from_bits_truncate(header.cmd_flags)
                .contains(ConvertFlags::OWNER_NOWAIT),
        },
        RequestBody::Inquire => Order::Inquire { target },
        RequestBody::Refused(refusal) => return refused(header, *refusal),
        RequestBody::Killpath(killpath) => {
            if header.target() == Target::Connection {
                let program =
                    KillpathProgram { path: killpath.path().to_vec(), arguments: killpath.args().to_vec() };
                let pid = KillpathFlags::from_bits_truncate(header.cmd_flags).contains(KillpathFlags::PID);
                Order::Killpath { program, pid }
            } else {
                Order::Refused { target, acquire: false, code: code::EINVAL }
            }
        }
        RequestBody::SetConfig(lockspace) => {
            let setting = ConfigCommand::from_number(header.data).map(|command| match command {
                ConfigCommand::Used => Setting::Used(true),
                ConfigCommand::Unused => Setting::Used(false),
                ConfigCommand::UsedByOrphans => Setting::UsedByOrphans(true),
                ConfigCommand::UnusedByOrphans => Setting::UsedByOrphans(false),
            });
            Order::SetConfig { lockspace: convert::lease_name(&lockspace.name), setting }
        }
        RequestBody::FormatRindex(index) | RequestBody::RebuildRindex(index) => {
            return index_way(header, index);
        }
        RequestBody::UpdateRindex(index, _)
        | RequestBody::LookupRindex(index, _)
        | RequestBody::CreateResource(index, _)
        | RequestBody::DeleteResource(index, _) => return index_way(header, index),
        RequestBody::ExamineLockspace(lockspace) => {
            Order::Examine { lockspace: convert::lease_name(&lockspace.name), resource: None }
        }
        RequestBody::ExamineResource(resource) => {
            let (lockspace, name) = convert::resource_name(resource);
            Order::Examine { lockspace, resource: Some(name) }
        }
        RequestBody::RegEvent { lockspace, .. } => {
            Order::RegEvent { lockspace: convert::lease_name(&lockspace.name) }
        }
        RequestBody::EndEvent(lockspace) => {
            Order::EndEvent { lockspace: convert::lease_name(&lockspace.name) }
        }
        RequestBody::SetEvent { lockspace, event } => set_event(header, lockspace, event),
        RequestBody::SetLvb { resource, lvb } => {
            let (lockspace, name) = convert::resource_name(resource);
            Order::SetLvb { lockspace, name, bytes: lvb.clone() }
        }
        RequestBody::GetLvb(resource) => {
            let (lockspace, name) = convert::resource_name(resource);
            Order::GetLvb { lockspace, name, length: header.data2 }
        }
        RequestBody::Request(_)
        | RequestBody::Align(_)
        | RequestBody::WriteLockspace(_)
        | RequestBody::WriteResource(_)
        | RequestBody::ReadLockspace(_)
        | RequestBody::ReadResource(_)
        | RequestBody::ReadResourceOwners(_) => return Way::Storage,
        RequestBody::Unsupported(Unsupported::ProtocolVersion(_)) => return Way::Silence,
        RequestBody::Unsupported(_) => return Way::Answer(Box::new(Reply::unsupported(header))),
    })
}

fn lockspace(header: &Header, body: &RequestBody, wire: &types::Lockspace) -> Option<Order> {
    let spec = convert::lockspace(wire).ok()?;
    let rem = RemFlags::from_bits_truncate(header.cmd_flags);
    Some(match body {
        RequestBody::AddLockspace(_) => Order::AddLockspace {
            spec,
            io_timeout: header.data,
            asynchronous: AddFlags::from_bits_truncate(header.cmd_flags).contains(AddFlags::ASYNC),
        },
        RequestBody::RemLockspace(_) => Order::RemLockspace {
            spec,
            asynchronous: rem.contains(RemFlags::ASYNC),
            unused: rem.contains(RemFlags::UNUSED),
        },
        _ => Order::InqLockspace {
            spec,
            wait: InqFlags::from_bits_truncate(header.cmd_flags).contains(InqFlags::WAIT),
        },
    })
}

fn refused(header: &Header, refusal: Refusal) -> Way {
    let code = refusal.code();
    if header.command().is_some_and(Command::is_targeted) {
        let acquire = header.command() == Some(Command::Acquire);
        return Way::Order(Order::Refused { target: convert::target(header.target()), acquire, code });
    }
    Way::Answer(Box::new(match (header.command(), refusal) {
        (Some(Command::ReadResource), Refusal::DiskCount { resource }) => {
            Reply::read_resource(header, code, resource)
        }
        (Some(Command::ReadResourceOwners), Refusal::DiskCount { resource }) => {
            Reply::read_resource_owners(header, code, resource, Vec::new())
        }
        _ => Reply::result(header, code),
    }))
}

/// Formatting an index needs no lockspace, and neither does anything else that says so, but creating and deleting.
fn index_way(header: &Header, index: &types::Rindex) -> Way {
    let command = header.command();
    let flag = RindexCmdFlags::from_bits_truncate(header.cmd_flags).contains(RindexCmdFlags::NO_LOCKSPACE);
    let member = matches!(command, Some(Command::CreateResource | Command::DeleteResource));
    if command == Some(Command::FormatRindex) || (flag && !member) {
        return Way::Storage;
    }
    let lockspace = convert::lease_name(&index.lockspace_name);
    Way::Order(Order::Index { lockspace, lease: command != Some(Command::LookupRindex) })
}

fn set_event(header: &Header, lockspace: &types::Lockspace, event: &types::HostEvent) -> Order {
    let flags = WireEvent::from_bits_truncate(header.cmd_flags);
    Order::SetEvent {
        lockspace: convert::lease_name(&lockspace.name),
        host_id: event.host_id.get(),
        event: HostEvent {
            generation: event.generation.get(),
            event: event.event.get(),
            data: event.data.get(),
        },
        flags: SetEventFlags {
            clear_host: flags.contains(WireEvent::CLEAR_HOSTID),
            clear_event: flags.contains(WireEvent::CLEAR_EVENT),
            replace: flags.contains(WireEvent::REPLACE_EVENT),
            all_hosts: flags.contains(WireEvent::ALL_HOSTS),
        },
    }
}

/// The manager's answer, as bytes that the client of this request can read.
pub(super) fn check_answer(header: &Header, answer: &Answer) {
    let reply = match answer {
        Answer::Result(result) if header.command() == Some(Command::SetConfig) => {
            Reply::set_config(header, *result)
        }
        Answer::Result(result) => result_of(header, *result),
        Answer::Held(held) => match convert::state_string(held) {
            Ok(text) => Reply::inquire(header, u32::try_from(held.len()).unwrap_or(0), text),
            Err(_) => Reply::result(header, code::ELIBACC),
        },
        Answer::Value(bytes) => Reply::get_lvb(header, bytes.to_vec()),
        Answer::ShutdownDone => Reply::shutdown_done(),
    };
    check_reply(header, &reply, matches!(answer, Answer::Result(0)));
}

fn result_of(header: &Header, result: i32) -> Reply {
    match header.command() {
        Some(
            Command::UpdateRindex | Command::LookupRindex | Command::CreateResource | Command::DeleteResource,
        ) => Reply::rindex(header, result, types::Rentry::new(name::Name::EMPTY, 0)),
        _ => Reply::result(header, result),
    }
}

/// A client decodes what the daemon sends, completely. A bare success where a list is due is not sent by the front, but may be here
/// (`bare`).
pub(super) fn check_reply(header: &Header, reply: &Reply, bare: bool) {
    let bytes = reply.encode();
    let Some(command) = header.command() else { return };
    match decode_stream(command, &bytes) {
        Ok(read) => assert_eq!(read.header, reply.header, "{command:?}"),
        Err(error) => assert!(bare && reply.header.result() == 0, "{command:?}: {error}"),
    }
}
