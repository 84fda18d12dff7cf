//! The answer for people.

use super::judge::Outlook;
use super::report::{
    HostReport, LockspaceReport, Mode, ProcessReport, Report, ResourceReport, Source, State,
};
use crate::subject;
use sanlock_lease::text::DiskSpec;

/// The whole answer, a line for each thing.
pub(super) fn of(report: &Report) -> String {
    let mut out = String::new();
    if let Some(resource) = &report.resource {
        out.push_str(&resource_lines(resource));
    } else if let Some(lockspace) = &report.lockspace {
        out.push_str(&lockspace_line(lockspace));
        if report.hosts.is_empty() {
            out.push_str("no host is in it\n");
        }
    }
    for host in &report.hosts {
        out.push_str(&host_lines(host, report.lockspace.as_ref()));
    }
    for process in &report.processes {
        out.push_str(&process_line(process, report.resource.is_none()));
    }
    out.push_str(&source_line(report));
    out
}

fn resource_lines(resource: &ResourceReport) -> String {
    let held = match (resource.mode, resource.released_by) {
        (Mode::Free, None) => "free".to_owned(),
        (Mode::Free, Some(host)) => {
            format!("free: host {host} has given it up, though a late write of another host still names it")
        }
        (Mode::Exclusive, _) => "held exclusively".to_owned(),
        (Mode::Shared, _) => "held shared".to_owned(),
    };
    let mut out = format!(
        "resource {}:{}: {held}, lease version {}\n",
        resource.lockspace.plain(),
        resource.name.plain(),
        resource.lease_version
    );
    for disk in &resource.disks {
        let error =
            disk.error.as_ref().map_or_else(String::new, |error| format!(": cannot be read: {error}"));
        out.push_str(&format!("  on {}:{}{error}\n", disk.path.plain(), disk.offset));
    }
    if resource.found_by_name {
        out.push_str(
            "  found on one disk by its name; if the lease has several disks, name them all: \
             LOCKSPACE:RESOURCE:PATH:OFFSET:PATH:OFFSET...\n",
        );
    }
    if !resource.agreed {
        out.push_str("  its disks differ: what the newest one says counts\n");
    }
    if let Some(request) = &resource.request {
        out.push_str(&format!(
            "  requested: version {}, force mode {} ({})\n",
            request.lease_version,
            request.force_mode,
            force_mode(request.force_mode)
        ));
    }
    if !resource.contenders.is_empty() {
        out.push_str(&format!(
            "  trying, or gave up trying, to acquire it: {}\n",
            hosts(&resource.contenders)
        ));
    }
    if !resource.damaged.is_empty() {
        out.push_str(&format!(
            "  damaged ballot records, so that nobody can acquire it: {}\n",
            hosts(&resource.damaged)
        ));
    }
    out
}

/// What a request asks the holder for (socket-protocol.md 7.11).
fn force_mode(mode: u32) -> &'static str {
    match mode {
        1 => "its holder is killed",
        2 => "its holder is asked to give it up",
        _ => "unknown",
    }
}

fn hosts(ids: &[u64]) -> String {
    let ids: Vec<String> = ids.iter().map(|id| format!("host {id}")).collect();
    ids.join(", ")
}

/// Host ids, ascending, of which there may be hundreds: those that follow each other as a range.
fn ranges(ids: &[u64]) -> String {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for id in ids {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*id) => *last = *id,
            _ => ranges.push((*id, *id)),
        }
    }
    let shown = |(first, last): (u64, u64)| match last - first {
        0 => format!("host {first}"),
        1 => format!("host {first}, host {last}"),
        _ => format!("hosts {first} to {last}"),
    };
    ranges.into_iter().map(shown).collect::<Vec<_>>().join(", ")
}

fn lockspace_line(lockspace: &LockspaceReport) -> String {
    let joined = lockspace.our_host_id.map_or_else(String::new, |id| format!(", this host is host {id}"));
    let mut out = format!(
        "lockspace {} on {}:{}{joined}\n",
        lockspace.name.plain(),
        lockspace.path.plain(),
        lockspace.offset
    );
    if let Some(error) = &lockspace.error {
        out.push_str(&format!("  whether the records of its hosts are sound is not known: {error}\n"));
    }
    if let Some(damaged) = lockspace.damaged.as_ref().filter(|damaged| !damaged.is_empty()) {
        out.push_str(&format!(
            "  damaged host id records, so that nobody can take what these hosts hold: {}; see {}\n",
            ranges(damaged),
            fsck(Some(lockspace))
        ));
    }
    out
}

/// The command that says more of a damaged record.
fn fsck(lockspace: Option<&LockspaceReport>) -> String {
    lockspace.map_or_else(
        || "'sanlock fsck PATH'".to_owned(),
        |lockspace| {
            let place = DiskSpec { path: lockspace.path.0.clone(), offset: lockspace.offset };
            format!("'sanlock fsck {}'", subject::place_argument(&place))
        },
    )
}

fn host_lines(host: &HostReport, lockspace: Option<&LockspaceReport>) -> String {
    let name = if host.name.is_empty() { String::new() } else { format!(" \"{}\"", host.name.plain()) };
    let this = if host.this_host { ", this host" } else { "" };
    let state = serde_json::to_value(host.state).ok();
    let state = state.as_ref().and_then(serde_json::Value::as_str).unwrap_or_default();
    let holds = host.mode.is_some();
    let mut out = format!(
        "host {}{name} generation {}{this}: {state}{}\n",
        host.host_id,
        host.generation,
        seen(host, lockspace)
    );
    let outlook = outlook(host.outlook, host.this_host, lockspace);
    if holds && !outlook.is_empty() {
        out.push_str(&format!("  {outlook}\n"));
    }
    out
}

/// What the state rests on.
fn seen(host: &HostReport, lockspace: Option<&LockspaceReport>) -> String {
    match (host.outlook, host.last_renewal_s) {
        (Outlook::NoRecord, _) => ", its host id lease was not found".to_owned(),
        (Outlook::Damaged, _) => {
            let damage = host.damage.as_deref().unwrap_or_default();
            format!(", its host id record is damaged: {damage}")
        }
        (Outlook::Declared, _) => ", declared dead by an administrator (DEAD_EXT)".to_owned(),
        (Outlook::Unread | Outlook::Unreadable, _) => {
            let error = lockspace.and_then(|lockspace| lockspace.error.as_deref());
            format!(", its host id record cannot be looked at: {}", error.unwrap_or("its place is not known"))
        }
        (Outlook::Gone, _) => ", has left the lockspace or joined it again since".to_owned(),
        (Outlook::Glimpsed { watched, .. }, _) => format!(", not seen renewing in {watched} s"),
        (Outlook::Unseen(_), _) => ", not seen renewing yet".to_owned(),
        (Outlook::AgeUnknown, _) => ", its last renewal is not known".to_owned(),
        (Outlook::NotLooked(secs), _) => {
            format!(
                ", its host id record has not been looked at for {secs} s: see the log of this host's daemon"
            )
        }
        (Outlook::Earlier, _) => ", which this host has not seen yet: only an earlier generation".to_owned(),
        // Of one that has been silent for that long the daemon does not say whether it ever saw it renew, or only its record.
        (Outlook::Failing(_) | Outlook::Dead | Outlook::Kept(State::Fail), Some(age)) => {
            format!(", no renewal seen for {age} s")
        }
        (_, Some(age)) => format!(", last renewal seen {age} s ago"),
        (_, None) => String::new(),
    }
}

/// When another host could have it.
fn outlook(outlook: Outlook, this_host: bool, lockspace: Option<&LockspaceReport>) -> String {
    match outlook {
        Outlook::Gone | Outlook::Dead | Outlook::Declared => "can be taken now".to_owned(),
        Outlook::Kept(_) => "can be taken when it is released, or when that host joins again or is declared dead (set_host of 5.1.1): its \
             lockspace has NO_TIMEOUT, so that silence frees nothing"
            .to_owned(),
        Outlook::Failing(wait) => format!("can be taken in {wait} s at the earliest"),
        Outlook::Renewing(wait) | Outlook::Unseen(wait) => {
            let host = if this_host { "this host" } else { "that host" };
            format!(
                "can be taken when it is released; without that in {wait} s at the earliest, if {host} does not renew any more"
            )
        }
        Outlook::Glimpsed { wait, .. } => format!(
            "can be taken when it is released; without that a host that begins to watch now needs {wait} s more, one that has been \
             watching fewer"
        ),
        Outlook::Damaged => format!(
            "can be taken by nobody while that record is damaged, and that host may be alive: see {}",
            fsck(lockspace)
        ),
        Outlook::Unread => {
            "when it can be taken is not known: the host has left or is dead, or its record is damaged".to_owned()
        }
        Outlook::Unreadable => "when it can be taken is not known: its lockspace cannot be read".to_owned(),
        Outlook::NoRecord if lockspace.is_some() => {
            "when it can be taken is not known: the lockspace has no such host id, or its record was damaged a moment ago"
                .to_owned()
        }
        Outlook::NoRecord => {
            "when it can be taken is not known: give its lockspace with -s NAME:0:PATH:OFFSET".to_owned()
        }
        Outlook::NotLooked(_) => {
            "when it can be taken is not known: this host does not see whether that one renews".to_owned()
        }
        Outlook::AgeUnknown => "when it can be taken is not known yet: ask again in a moment".to_owned(),
        Outlook::Earlier => "when it can be taken is not known yet: ask again in a moment; an acquire on this host counts from its own first look"
            .to_owned(),
    }
}

fn process_line(process: &ProcessReport, with_resource: bool) -> String {
    let name = if process.name.is_empty() { String::new() } else { format!(" ({})", process.name.plain()) };
    let who = process.pid.map_or_else(|| "an orphan".to_owned(), |pid| format!("process {pid}{name}"));
    let resource = if with_resource { process.resource.plain() } else { "it".to_owned() };
    let mode = if process.mode == Mode::Shared { " shared" } else { "" };
    let does = match process.list.0.as_slice() {
        b"add" => format!("is acquiring {resource}{mode}"),
        b"rem" => format!("has released {resource}{mode}, which is being written"),
        b"orphan" => format!("holds {resource}{mode}, left behind by a process that has ended"),
        _ => format!("holds {resource}{mode}"),
    };
    let version = if with_resource { format!(", version {}", process.lease_version) } else { String::new() };
    format!("on this host: {who} {does}{version}\n")
}

fn source_line(report: &Report) -> String {
    let Source { daemon, daemon_error, disk, watched_s } = &report.source;
    let read = if *disk { "" } else { "; the daemon read the lease, so that requests are not known" };
    match (daemon, watched_s, daemon_error) {
        (true, ..) => format!("hosts as this host's daemon sees them{read}\n"),
        (false, Some(watched), None) => {
            format!(
                "hosts as seen on the disk in {watched} s: this host's daemon is not in the lockspace{read}\n"
            )
        }
        (false, Some(watched), Some(error)) => {
            format!("hosts as seen on the disk in {watched} s, processes are not known: {error}\n")
        }
        (false, None, Some(error)) => format!("processes of this host are not known: {error}\n"),
        (false, None, None) => format!("this host's daemon is not in the lockspace{read}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_host_ids_are_told_as_ranges() {
        for (ids, shown) in [
            (&[][..], ""),
            (&[1], "host 1"),
            (&[1, 2], "host 1, host 2"),
            (
                &[1, 2, 3, 7, 9, 10, 11, u64::MAX],
                "hosts 1 to 3, host 7, hosts 9 to 11, host 18446744073709551615",
            ),
        ] {
            assert_eq!(ranges(ids), shown);
        }
    }
}
