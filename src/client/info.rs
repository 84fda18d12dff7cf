//! What the daemon knows and is: `gets`, `renewal`, `log_dump`, `version`, `shutdown` (command-line.md 6, 7.3 to 7.6).

use super::convert::{lockspace_text, name};
use super::{done, explain, failed, result_of, shown, silent_failure, tell_cut};
use crate::output::{FAILURE, SUCCESS, note, print};
use crate::progress::{Signs, show, so_far};
use crate::subject;
use crate::version::{COMPATIBLE, Version};
use sanlock_client::wire::flags::{HostState, LockspaceFlags};
use sanlock_client::wire::limits::PROTOCOL_VERSION;
use sanlock_client::wire::{Host, Lockspace, StateRecord, code};
use sanlock_client::{Arrived, Client, DaemonVersion};
use sanlock_lease::name::Name;
use std::time::Duration;

/// For an answer that only a note on stderr is made of. The daemon has it in memory.
const NOTE_PATIENCE: Duration = Duration::from_secs(1);

/// Exits with 0 also where the daemon has more lockspaces than its answer holds, as the original does.
pub(super) fn gets(client: &Client, with_hosts: bool) -> u8 {
    let (lockspaces, cut) = match client.lockspaces_arrived() {
        Ok(arrived) => (arrived.items, arrived.cut),
        Err(error) => return failed("gets", "", &error),
    };
    for lockspace in lockspaces {
        let flags = LockspaceFlags::from_bits_truncate(lockspace.flags.get());
        let mut out = b"s ".to_vec();
        out.extend_from_slice(&lockspace_text(&lockspace, false));
        out.push(b' ');
        if flags.contains(LockspaceFlags::ADD) {
            out.extend_from_slice(b"ADD ");
        }
        if flags.contains(LockspaceFlags::REM) {
            out.extend_from_slice(b"REM ");
        }
        out.push(b'\n');
        if with_hosts {
            match client.get_hosts(lockspace.name, 0) {
                Ok(hosts) => out.extend(hosts.iter().filter(|h| h.timestamp.get() != 0).flat_map(host_line)),
                Err(error) if error.result_code() == code::EAGAIN => {
                    out.extend_from_slice(b"hosts not ready\n");
                }
                Err(error) => {
                    out.extend_from_slice(format!("hosts error {}\n", error.result_code()).as_bytes());
                    explain("gets", &format!("hosts of lockspace {}", lockspace_name(&lockspace)), &error);
                }
            }
        }
        print(out);
    }
    tell_cut("gets", cut.as_ref());
    SUCCESS
}

fn lockspace_name(lockspace: &Lockspace) -> String {
    String::from_utf8_lossy(lockspace.name.name_bytes()).into_owned()
}

fn host_line(host: &Host) -> Vec<u8> {
    let state = HostState::from_flags(host.flags.get()).map_or("ERROR", HostState::name);
    format!("h {} gen {} timestamp {} {state}\n", host.host_id, host.generation, host.timestamp).into_bytes()
}

pub(super) fn renewal(client: &Client, lockspace: Name) -> u8 {
    if lockspace.is_empty() {
        note("renewal", "no lockspace given, use -s NAME");
        return FAILURE;
    }
    match client.renewal(name(lockspace)) {
        Ok((_, records)) => shown(&records.iter().flat_map(renewal_line).collect::<Vec<_>>()),
        Err(error) => silent_failure("renewal", &subject::lockspace_name(lockspace), &error),
    }
}

fn renewal_line(record: &StateRecord) -> Vec<u8> {
    let mut line = Vec::new();
    for key in ["timestamp", "read_ms", "write_ms", "next_timeouts", "next_errors"] {
        if !line.is_empty() {
            line.push(b' ');
        }
        line.extend_from_slice(key.as_bytes());
        line.push(b'=');
        line.extend_from_slice(record.get(key).unwrap_or(b"0"));
    }
    line.push(b'\n');
    line
}

/// Exits with 1 even when the log was printed, as the original does (command-line.md 5.3).
pub(super) fn log_dump(client: &Client) -> u8 {
    let Arrived { items: mut text, announced, cut } = match client.log_dump_arrived() {
        Ok(arrived) => arrived,
        Err(error) => return silent_failure("log_dump", "", &error),
    };
    let (came, announced) = (text.len(), announced.unwrap_or(0));
    text.push(b'\n');
    if came < announced {
        text.extend_from_slice(format!("partial dump {came} of {announced}\n").as_bytes());
    }
    print(text);
    tell_cut("log_dump", cut.as_ref());
    FAILURE
}

pub(super) fn version(client: &Client) -> u8 {
    let daemon = client.version();
    if let Err(error) = &daemon {
        print(format!("daemon version error {}\n", error.result_code()));
        explain("version", "", error);
    }
    let daemon = daemon.unwrap_or(DaemonVersion { version: 0, protocol: 0 });
    shown(
        format!(
            "client version {COMPATIBLE} ({:#010x})\n\
             daemon version {} ({:#010x})\n\
             client socket protocol {}\n\
             daemon socket protocol {}\n",
            COMPATIBLE.number(),
            Version::from_number(daemon.version),
            daemon.version,
            protocol(PROTOCOL_VERSION),
            protocol(daemon.protocol),
        )
        .as_bytes(),
    )
}

fn protocol(number: u32) -> String {
    format!("{}.{}", number >> 16, number & 0xffff)
}

pub(super) fn shutdown(client: &Client, force: u32, wait: u32, signs: Signs) -> u8 {
    const ACTION: &str = "shutdown";
    print(format!("shutdown force {force} wait {wait}\n"));
    if wait != 0 {
        let tell = so_far("waiting for the daemon to end");
        let outcome = show(signs, ACTION, tell, || client.shutdown_wait(force != 0));
        return done(ACTION, "", &outcome);
    }
    // Asked before, because a daemon without lockspaces is gone afterwards. One that does not answer now is told all the same: it may hear of it later.
    let lockspaces = if force == 0 {
        client.clone().within(NOTE_PATIENCE).get_lockspaces().map_or(0, |list| list.len())
    } else {
        0
    };
    let outcome = client.shutdown(force != 0);
    if result_of(&outcome) == 0 && lockspaces > 0 {
        note(
            ACTION,
            &format!(
                "the daemon has {lockspaces} lockspace(s) and ignores this; remove them or use -f 1, which kills their users"
            ),
        );
    }
    done(ACTION, "", &outcome)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanlock_client::wire::StateText;

    #[test]
    fn host_lines() {
        let host = Host {
            host_id: 2.into(),
            generation: 3.into(),
            timestamp: 7.into(),
            io_timeout: 1.into(),
            flags: 4.into(),
        };
        assert_eq!(host_line(&host), b"h 2 gen 3 timestamp 7 FAIL\n");
        assert_eq!(host_line(&Host { flags: 9.into(), ..host }), b"h 2 gen 3 timestamp 7 ERROR\n");
    }

    #[test]
    fn renewal_lines_have_five_words() {
        let record = StateRecord::renewal(5, StateText::default());
        assert_eq!(
            renewal_line(&record),
            b"timestamp=0 read_ms=0 write_ms=0 next_timeouts=0 next_errors=0\n"
        );
    }

    #[test]
    fn protocol_numbers() {
        assert_eq!(protocol(1), "0.1");
        assert_eq!(protocol(0x0002_0003), "2.3");
    }
}
