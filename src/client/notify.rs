//! `request`, `examine`, `set_event` (command-line.md 7.17, 7.18).

use super::convert::{lockspace as wire_lockspace, name, names, request as wire_request};
use super::done;
use crate::cli::command::ReadTarget;
use crate::output::{FAILURE, note, print};
use crate::subject;
use sanlock_client::wire::code;
use sanlock_client::wire::flags::{RequestFlags, SetEventFlags};
use sanlock_client::wire::types::HostEvent;
use sanlock_client::{Client, ClientError};
use sanlock_lease::name::Name;
use sanlock_lease::text::ResourceSpec;

pub(super) fn request(client: &Client, resource: Option<&ResourceSpec>, force_mode: u32) -> u8 {
    const ACTION: &str = "request";
    print(format!("{ACTION}\n"));
    let outcome = match resource {
        Some(spec) => {
            wire_request(spec).and_then(|spec| client.request(&spec, RequestFlags::empty(), force_mode))
        }
        None => Err(ClientError::NoDisks),
    };
    done(ACTION, &resource.map(subject::resource).unwrap_or_default(), &outcome)
}

pub(super) fn examine(client: &Client, target: &ReadTarget) -> u8 {
    const ACTION: &str = "examine";
    print(format!("{ACTION}\n"));
    let outcome = match target {
        // Only the name is used, but a lockspace is recognised by its path.
        ReadTarget::Lockspace(spec) => {
            wire_lockspace(spec).map_err(ClientError::from).and_then(|spec| client.examine_lockspace(&spec))
        }
        ReadTarget::Resource(spec) => client.examine_resource(names(spec)),
        ReadTarget::Nothing => {
            print(format!("{ACTION} done {}\n", code::EINVAL));
            note(ACTION, "name a resource (-r) or a lockspace with its path (-s NAME:0:PATH:0)");
            return FAILURE;
        }
    };
    done(ACTION, &target.subject(), &outcome)
}

pub(super) fn set_event(client: &Client, lockspace: Name, event: HostEvent) -> u8 {
    const ACTION: &str = "set_event";
    let (host, generation) = (event.host_id, event.generation);
    print(format!(
        "{ACTION} {host} {generation} event {:#x} data {:#x}\n",
        event.event.get(),
        event.data.get()
    ));
    let outcome = client.set_event(name(lockspace), event, SetEventFlags::empty());
    done(ACTION, &format!("host {host} of lockspace {lockspace}"), &outcome)
}
