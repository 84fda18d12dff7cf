//! Leases of another process: `acquire`, `convert`, `release`, `inquire` (command-line.md 7.16).

use super::convert::{acquire as wire_resources, name, names};
use super::owner::{Waiting, explain_refusal};
use super::{done, explain, result_of};
use crate::cli::command::{AcquireArgs, NO_PID};
use crate::output::{note, print, status_of};
use crate::progress::{Signs, show};
use crate::subject;
use sanlock_client::wire::flags::{AcquireFlags, ConvertFlags, ReleaseFlags, ResourceFlags};
use sanlock_client::wire::{Resource, code};
use sanlock_client::{Client, ClientError, Inquiry};
use sanlock_lease::name::Name;
use sanlock_lease::text::{ResourceSpec, library};

/// Flags of an acquire.
pub(super) fn acquire_flags(args: &AcquireArgs) -> AcquireFlags {
    if args.orphan { AcquireFlags::ORPHAN } else { AcquireFlags::empty() }
}

pub(super) fn acquire(client: &Client, pid: i32, args: &AcquireArgs, signs: Signs) -> u8 {
    const ACTION: &str = "acquire";
    print(format!("{ACTION} pid {pid}\n"));
    if args.resources.is_empty() {
        note(ACTION, "no resource given (-r), so nothing is acquired");
    }
    let mut waiting = Waiting::new(client, &args.resources);
    let outcome = wire_resources(args).and_then(|resources| {
        let ask = || client.acquire(pid, acquire_flags(args), &resources, None);
        show(signs, ACTION, move |passed| waiting.tell(passed), ask)
    });
    let status = done(ACTION, &object(&subject::resources(&args.resources), pid), &outcome);
    if let Err(error) = &outcome {
        explain_target(ACTION, pid, error);
        explain_refusal(client, ACTION, &args.resources, error);
    }
    status
}

/// What was to be worked on, and whose it is.
fn object(resources: &str, pid: i32) -> String {
    match (resources.is_empty(), pid == NO_PID) {
        (true, true) => String::new(),
        (true, false) => format!("pid {pid}"),
        (false, true) => resources.to_owned(),
        (false, false) => format!("{resources} for pid {pid}"),
    }
}

/// `-p` is what most often is missing when the daemon answers "busy".
fn explain_target(action: &str, pid: i32, error: &ClientError) {
    if pid == NO_PID && matches!(error, ClientError::Daemon { .. }) {
        note(action, "no process was named, use -p PID");
    }
}

pub(super) fn release(
    client: &Client,
    pid: i32,
    resources: &[ResourceSpec],
    lockspace: Name,
    all: bool,
    orphan: bool,
) -> u8 {
    const ACTION: &str = "release";
    print(format!("{ACTION} pid {pid}\n"));
    if all && orphan {
        note(ACTION, "-a 1 releases what the process holds; orphans, which -O 1 is about, stay as they are");
    }
    // The daemon looks at ALL first (socket-protocol.md 7.7).
    let orphan = orphan && !all;
    let flags = match (all, orphan) {
        (true, _) => ReleaseFlags::ALL,
        (false, true) => ReleaseFlags::ORPHAN,
        (false, false) => ReleaseFlags::empty(),
    };
    let mut named: Vec<Resource> = resources.iter().map(names).collect();
    if orphan && named.is_empty() {
        // Without a name: every orphan of the lockspace.
        named.push(Resource::new(name(lockspace), sanlock_client::wire::Name::EMPTY));
    }
    if named.is_empty() && !all {
        note(ACTION, "no resource given (-r), so nothing is released");
    }
    // Orphans are nobody's, but the daemon hears of it from registered processes only: this one, if no other is named.
    let mut own = (orphan && pid == NO_PID).then(|| client.register());
    let mut ask = |names: &[Resource]| match &mut own {
        Some(Ok(own)) => own.release(flags, names),
        Some(Err(error)) => Err(error.clone()),
        None => client.release(pid, flags, names),
    };
    let outcome = if orphan {
        // Of a request for orphans the daemon takes the first name only (socket-protocol.md 7.7). All are tried; the first failure is told.
        let counts: Vec<_> = named.iter().map(|name| ask(std::slice::from_ref(name))).collect();
        counts.into_iter().try_fold(0_u32, |sum, count| Ok(sum + count?))
    } else {
        ask(&named)
    };
    // The number of orphans is the result; it is positive, so success exits with 1 (command-line.md 5.3).
    let result =
        outcome.as_ref().map_or_else(|error| i64::from(error.result_code()), |count| i64::from(*count));
    print(format!("{ACTION} done {result}\n"));
    if let Err(error) = &outcome {
        explain(ACTION, &object(&subject::resources(resources), pid), error);
        explain_target(ACTION, pid, error);
    }
    status_of(i32::from(result != 0))
}

pub(super) fn convert(client: &Client, pid: i32, resource: Option<&ResourceSpec>) -> u8 {
    const ACTION: &str = "convert";
    print(format!("{ACTION} pid {pid}\n"));
    let Some(spec) = resource else {
        print(format!("{ACTION} done {}\n", code::EINVAL));
        note(ACTION, "no resource given (-r)");
        return status_of(code::EINVAL);
    };
    let mut wanted = names(spec);
    if spec.shared {
        wanted.flags = ResourceFlags::SHARED.bits().into();
    }
    let outcome = client.convert(pid, ConvertFlags::empty(), wanted);
    let status = done(ACTION, &object(&subject::resource(spec), pid), &outcome);
    if let Err(error) = &outcome {
        explain_target(ACTION, pid, error);
        explain_refusal(client, ACTION, std::slice::from_ref(spec), error);
    }
    status
}

pub(super) fn inquire(client: &Client, pid: i32, debug: bool) -> u8 {
    const ACTION: &str = "inquire";
    print(format!("{ACTION} pid {pid}\n"));
    let outcome = client.inquire(pid);
    let result = result_of(&outcome);
    match &outcome {
        Ok(inquiry) => print(inquiry_text(inquiry, debug)),
        Err(error) => {
            print(format!("{ACTION} done {result} res_count 0\n"));
            explain(ACTION, &object("", pid), error);
            explain_target(ACTION, pid, error);
        }
    }
    status_of(result)
}

fn quoted(state: &[u8]) -> Vec<u8> {
    // The original prints a missing string the way its C library does, and scripts test for it.
    let state = if state.is_empty() { b"(null)" } else { state };
    [b"\"", state, b"\"\n"].concat()
}

fn inquiry_text(inquiry: &Inquiry, debug: bool) -> Vec<u8> {
    let mut out = format!("inquire done 0 res_count {}\n", inquiry.count).into_bytes();
    out.extend_from_slice(&quoted(&inquiry.state));
    if debug && !inquiry.state.is_empty() {
        out.extend_from_slice(&conversion_check(&inquiry.state));
    }
    out
}

/// What `-D` appends: the string taken apart and put together again. Only the first disk of each resource is shown, and 0
/// as the version of a shared one.
fn conversion_check(state: &[u8]) -> Vec<u8> {
    let resources = match library::state(state) {
        Ok(resources) => resources,
        Err(error) => return format!("\nstate_to_args done {} res_count 0\n", error.code()).into_bytes(),
    };
    let mut out = format!("\nstate_to_args done 0 res_count {}\n", resources.len()).into_bytes();
    for resource in &resources {
        let first = resource.disks.first().cloned().unwrap_or_default();
        let names = [resource.lockspace.as_bytes(), b":", resource.name.as_bytes(), b":"].concat();
        let place = format!(":{}:{}", first.offset, resource.lver.unwrap_or(0));
        out.extend_from_slice(&[b"\"", names.as_slice(), &first.path, place.as_bytes(), b"\"\n"].concat());
    }
    match library::join_state(&resources) {
        Ok(state) => {
            out.extend_from_slice(b"\nargs_to_state done 0\n");
            out.extend_from_slice(&quoted(&state));
        }
        Err(error) => out.extend_from_slice(format!("\nargs_to_state done {}\n", error.code()).as_bytes()),
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(file: &str) -> Vec<u8> {
        let (_, stdout) = file.split_once("--- stdout\n").unwrap();
        let (stdout, _) = stdout.split_once("--- stderr").unwrap();
        // The first line names the process.
        stdout.split_once('\n').unwrap().1.as_bytes().to_vec()
    }

    fn inquiry(count: u32, state: &str) -> Inquiry {
        Inquiry { count, state: state.as_bytes().to_vec() }
    }

    #[test]
    fn as_recorded() {
        let two = inquiry(2, "LS:R0:/srv/lease/res:0:1 LS:R1:/srv/lease/res:1048576:SH");
        assert_eq!(
            inquiry_text(&two, false),
            recorded(include_str!("../../tests/golden/cli/096-inquire.txt"))
        );
        assert_eq!(
            inquiry_text(&two, true),
            recorded(include_str!("../../tests/golden/cli/097-inquire-D.txt"))
        );
    }

    #[test]
    fn nothing_held() {
        assert_eq!(inquiry_text(&inquiry(0, ""), false), b"inquire done 0 res_count 0\n\"(null)\"\n");
    }
}
