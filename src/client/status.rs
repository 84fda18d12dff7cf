//! `status` and `host_status`: the daemon's records, a line each (command-line.md 7.1, 7.2).

use super::convert::{lockspace_text, name, resource_text};
use super::{explain, shown, silent_failure, tell_cut};
use crate::cli::command::StatusOrder;
use crate::output::{FAILURE, SUCCESS, print};
use crate::subject;
use sanlock_client::Client;
use sanlock_client::wire::flags::ResourceFlags;
use sanlock_client::wire::{Attachment, StateRecord, StateType};
use sanlock_lease::name::Name;

/// Records that are sorted; above that the original gives up, and so do we.
const SORTED_RECORDS_MAX: usize = 1024;

/// Exits with 0 also where the answer broke off after some records, as the original does.
pub(super) fn status(client: &Client, order: StatusOrder, debug: bool) -> u8 {
    let (records, cut) = match client.status_arrived(0) {
        Ok(arrived) => (arrived.items, arrived.cut),
        Err(error) => return silent_failure("status", "", &error),
    };
    if !can_be_listed(records.iter().filter(|record| is_listed(record)).count(), order) {
        print(format!("cannot sort over {SORTED_RECORDS_MAX}\n"));
        return FAILURE;
    }
    let status = shown(&listing(&records, order, debug));
    tell_cut("status", cut.as_ref());
    status
}

/// Whether that many records can be brought into this order.
fn can_be_listed(records: usize, order: StatusOrder) -> bool {
    order == StatusOrder::Unsorted || records <= SORTED_RECORDS_MAX
}

/// Whether a record has a line. What later versions send beside these, such as the workers of 5.1.1, is skipped with all its words, as
/// 3.8.5 does it (socket-protocol.md 13): without a heading, its words would be taken for those of the record before it.
fn is_listed(record: &StateRecord) -> bool {
    use StateType::{Client, Daemon, Lockspace, Resource};
    matches!(record.state_type(), Some(Daemon | Client | Lockspace | Resource))
}

/// All records that are listed, as text.
fn listing(records: &[StateRecord], order: StatusOrder, debug: bool) -> Vec<u8> {
    // Neither printed later nor left over.
    let printed = records.iter().map(|record| !is_listed(record)).collect();
    let mut listing = Listing { records, printed, out: Vec::new(), debug };
    let is = |kind: StateType| move |record: &StateRecord| record.state_type() == Some(kind);
    let unregistered = |record: &StateRecord| pid_of(record) == -1;
    match order {
        StatusOrder::Unsorted => {}
        StatusOrder::ByProcess => {
            listing.take(is(StateType::Daemon));
            listing.take(|r| is(StateType::Client)(r) && unregistered(r));
            listing.take(is(StateType::Lockspace));
            for client in records.iter().filter(|r| is(StateType::Client)(r) && !unregistered(r)) {
                listing.take(|r| std::ptr::eq(r, client));
                listing.take(|r| is(StateType::Resource)(r) && pid_of(r) == pid_of(client));
            }
            listing.rule_before_rest();
        }
        StatusOrder::ByLockspace => {
            listing.take(is(StateType::Daemon));
            listing.take(|r| is(StateType::Client)(r) && unregistered(r));
            listing.take(is(StateType::Client));
            for lockspace in records.iter().filter(|r| is(StateType::Lockspace)(r)) {
                listing.take(|r| std::ptr::eq(r, lockspace));
                listing.take(|r| lockspace_of(r).is_some_and(|name| name == lockspace.name));
            }
            listing.rule_before_rest();
        }
    }
    listing.take(|_| true);
    listing.out
}

struct Listing<'a> {
    records: &'a [StateRecord],
    /// What needs no line any more, or has none.
    printed: Vec<bool>,
    out: Vec<u8>,
    debug: bool,
}

impl Listing<'_> {
    /// Prints the records that are wanted and not printed yet, in the order they came.
    fn take(&mut self, wanted: impl Fn(&StateRecord) -> bool) {
        for (record, printed) in self.records.iter().zip(&mut self.printed) {
            if !*printed && wanted(record) {
                *printed = true;
                write_record(&mut self.out, record, self.debug);
            }
        }
    }

    fn rule_before_rest(&mut self) {
        if self.printed.contains(&false) {
            self.out.extend_from_slice(b"-\n");
        }
    }
}

/// The process of a client or resource record; -1 for none.
pub(super) fn pid_of(record: &StateRecord) -> i32 {
    i32::from_ne_bytes(record.data32.to_ne_bytes())
}

/// The lockspace of a resource record.
fn lockspace_of(record: &StateRecord) -> Option<sanlock_client::wire::Name> {
    match &record.attachment {
        Attachment::Resource(spec) => Some(spec.resource().lockspace_name),
        _ => None,
    }
}

fn write_record(out: &mut Vec<u8>, record: &StateRecord, debug: bool) {
    match (&record.attachment, record.state_type()) {
        (Attachment::Lockspace(lockspace), _) => {
            out.extend_from_slice(b"s ");
            out.extend_from_slice(&lockspace_text(lockspace, true));
            out.extend_from_slice(list_word(record));
        }
        (Attachment::Resource(spec), _) => {
            let flags = ResourceFlags::from_bits_truncate(spec.resource().flags.get());
            let shared = flags.contains(ResourceFlags::SHARED);
            out.extend_from_slice(b"r ");
            out.extend_from_slice(&resource_text(spec.resource(), spec.disks(), record.data64, shared));
            out.extend_from_slice(format!(" p {}", pid_of(record)).as_bytes());
            out.extend_from_slice(list_word(record));
        }
        (Attachment::None, Some(StateType::Daemon)) => {
            out.extend_from_slice(b"daemon ");
            out.extend_from_slice(record.name.name_bytes());
        }
        (Attachment::None, Some(StateType::Client)) => {
            out.extend_from_slice(format!("p {} ", pid_of(record)).as_bytes());
            out.extend_from_slice(record.name.name_bytes());
        }
        // Not listed.
        (Attachment::None, _) => return,
    }
    out.push(b'\n');
    if debug {
        write_words(out, record);
    }
}

/// What kind of list the record comes from, with the blank before it.
fn list_word(record: &StateRecord) -> &'static [u8] {
    match record.get("list") {
        Some(b"add") => b" ADD",
        Some(b"rem") => b" REM",
        Some(b"orphan") => b" ORPHAN",
        _ => b"",
    }
}

/// The record's `key=value` words, a line each.
fn write_words(out: &mut Vec<u8>, record: &StateRecord) {
    for (key, value) in record.items().filter(|(key, _)| !key.is_empty()) {
        out.extend_from_slice(b"    ");
        out.extend_from_slice(key);
        out.push(b'=');
        out.extend_from_slice(value);
        out.push(b'\n');
    }
}

pub(super) fn host_status(client: &Client, lockspace: Name, debug: bool) -> u8 {
    if !lockspace.is_empty() {
        return match client.host_status(name(lockspace)) {
            Ok(records) => shown(&hosts(&records, debug)),
            Err(error) => silent_failure("host_status", &subject::lockspace_name(lockspace), &error),
        };
    }
    let records = match client.status(StateType::Lockspace as u32) {
        Ok(records) => records,
        Err(error) => return silent_failure("host_status", "", &error),
    };
    for record in records.iter().filter(|r| r.state_type() == Some(StateType::Lockspace)) {
        let mut out = b"lockspace ".to_vec();
        out.extend_from_slice(record.name.name_bytes());
        out.push(b'\n');
        match client.host_status(record.name) {
            Ok(records) => out.extend_from_slice(&hosts(&records, debug)),
            Err(error) => {
                let lockspace = String::from_utf8_lossy(record.name.name_bytes());
                explain("host_status", &format!("lockspace {lockspace}"), &error);
            }
        }
        print(out);
    }
    SUCCESS
}

fn hosts(records: &[StateRecord], debug: bool) -> Vec<u8> {
    let mut out = Vec::new();
    for record in records {
        out.extend_from_slice(format!("{} timestamp {}\n", record.data32, record.data64).as_bytes());
        if debug {
            write_words(&mut out, record);
        }
    }
    out
}

#[cfg(test)]
mod tests;
