//! The walk-through of command-line.md 7 on two hosts: init, join, hold, be refused, look, release,
//! leave, shut down. Every step is a recording of the original, repeated with a chosen command line
//! against chosen daemons.

use std::time::Duration;

use tempfile::TempDir;

use crate::bounded;
use crate::golden::{Golden, Session};
use crate::holder::Holder;
use crate::host::Host;
use crate::program::Program;
use crate::storage::{scratch_dir, sparse_file, text};

const SHORT: Duration = Duration::from_secs(60);

/// Process ids of the recordings: the holder on host A, the registered process on host B, and the
/// one whose leases are all released.
const RECORDED_A: &str = "8076";
const RECORDED_B: &str = "8112";
const RECORDED_C: &str = "11205";

/// The lease files of the recordings: `ls`, `res` with R0, R1, R2, and `extra`.
fn lease_dir() -> TempDir {
    let dir = scratch_dir("lease");
    sparse_file(&dir.path().join("ls"), 1 << 20);
    sparse_file(&dir.path().join("res"), 16 << 20);
    sparse_file(&dir.path().join("extra"), 16 << 20);
    dir
}

/// Everything that needs no daemon: complaints about its absence, and the `direct` actions.
///
/// # Panics
/// At the first difference from the recordings.
pub fn without_daemon(cli: Program) {
    let dir = lease_dir();
    let run_dir = scratch_dir("run");
    let session = Session::new(cli, run_dir.path(), text(dir.path()));
    for name in [
        "019-nodaemon-status",
        "020-nodaemon-gets",
        "021-nodaemon-host_status",
        "022-nodaemon-log_dump",
        "023-nodaemon-client-version",
        "024-nodaemon-add_lockspace",
        "025-nodaemon-inq_lockspace",
        "026-nodaemon-acquire",
        "027-nodaemon-inquire",
    ] {
        session.check(name);
    }
    session.check_but_status("028-nodaemon-command");
    for name in [
        "029-nodaemon-shutdown",
        "030-direct-init-noarg",
        "032-direct-dump-noarg",
        "033-direct-dump-nofile",
        "034-direct-dump-blank",
        "035-direct-init-ls",
        "036-direct-init-res",
    ] {
        session.check(name);
    }
    init_more(&session);
    for name in [
        "037-direct-read_leader-ls-new",
        "038-direct-read_leader-res-new",
        "039-direct-read_leader-wrongname",
        "040-direct-read_leader-wronglockspace",
        "042-direct-next_free-sizes",
        "043-direct-init-clear",
        "044-direct-read_leader-cleared",
    ] {
        session.check(name);
    }
}

/// Option mistakes and their messages (command-line.md 3).
///
/// # Panics
/// At the first difference from the recordings.
pub fn usage_errors(cli: Program) {
    let dir = lease_dir();
    let run_dir = scratch_dir("run");
    let session = Session::new(cli, run_dir.path(), text(dir.path()));
    for name in [
        "006-unknown-action",
        "007-unknown-direct-action",
        "008-unknown-option",
        "009-unknown-word",
        "010-option-missing-arg",
        "011-option-attached-value",
        "012-long-option",
        "013-sizes-invalid",
        "014-sizes-align-only",
        "015-sizes-sector-only",
    ] {
        session.check(name);
    }
    session.check_refused("016-resource-unparsable");
    session.check_refused("017-resource-too-many");
}

/// R1 and R2, which the recordings initialised in the same way as R0.
fn init_more(session: &Session) {
    for (name, offset) in [("R1", "1M"), ("R2", "2M")] {
        let mut golden = Golden::load("036-direct-init-res");
        for word in &mut golden.command {
            *word = word.replace(":R0:", &format!(":{name}:")).replace("res:0", &format!("res:{offset}"));
        }
        session.check_golden(&golden, true);
    }
}

/// The whole session on two hosts, each with its daemon program; `cli` talks to both.
///
/// # Panics
/// At the first difference from the recordings.
pub fn two_hosts(daemon_a: Program, daemon_b: Program, cli: Program) {
    let dir = lease_dir();
    let mut host_a = Host::start_with(daemon_a, cli, "hostA", &[]);
    let mut host_b = Host::start_with(daemon_b, cli, "hostB", &[]);
    let mut a = Session::new(cli, host_a.run_dir(), text(dir.path()));
    let mut b = Session::new(cli, host_b.run_dir(), text(dir.path()));

    let _ = a.run(&Golden::load("035-direct-init-ls")).success();
    let _ = a.run(&Golden::load("036-direct-init-res")).success();
    init_more(&a);
    nothing_joined(&a);
    joining(&host_a, &a, text(dir.path()));
    joined(&host_a, &host_b, &a, text(dir.path()));

    let lease = |name: &str, offset: &str| format!("LS:{name}:{}/res:{offset}", text(dir.path()));
    let mut holder_a = Holder::start(&host_a, &[&lease("R0", "0"), &lease("R1", "1M:SH")]);
    let mut holder_b = Holder::start(&host_b, &[&lease("R1", "1M:SH")]);
    registered(&host_b, &holder_b);
    a.cast(RECORDED_A, holder_a.pid());
    b.cast(RECORDED_B, holder_b.pid());
    held(&a, &b);
    // The recordings that follow need R1 for other things.
    for (host, holder) in [(&host_a, &holder_a), (&host_b, &holder_b)] {
        let pid = holder.pid().to_string();
        let _ = host.client(&["client", "release", "-r", &lease("R1", "1M"), "-p", &pid]).success();
    }
    acquiring_for_a_process(&host_a, &a);
    released_everything(&host_a, &mut a, &lease("R1", "1M"), &lease("R2", "2M"));

    holder_a.kill();
    bounded::wait_until("the killed holder to be forgotten", SHORT, || holder_a.leases(&host_a).is_none());
    a.check("132-inquire-after-kill");
    a.check("181-shutdown-noforce-ignored");
    a.check("182-shutdown-noforce-wait");
    assert!(host_a.alive(), "a shutdown without force is ignored while a lockspace is joined");

    a.check("186-rem_lockspace");
    let end = host_a.client(&["client", "shutdown", "-w", "1"]).success();
    assert_eq!(end.stdout, "shutdown force 0 wait 1\nshutdown done 0\n");
    assert!(host_a.wait_for_end(SHORT).success(), "the daemon of host A ends with status 0");

    let forced = host_b.client(&["client", "shutdown", "-f", "1", "-w", "1"]).success();
    assert_eq!(forced.stdout, "shutdown force 1 wait 1\nshutdown done 0\n");
    assert!(host_b.wait_for_end(SHORT).success(), "the daemon of host B ends with status 0");
    assert!(!holder_b.ended(), "a process without leases survives a forced shutdown");
}

/// Host A runs and has joined nothing.
fn nothing_joined(a: &Session) {
    for name in [
        "045-status-empty",
        "046-status-default-type",
        "047-status-D-empty",
        "048-gets-empty",
        "049-host_status-empty",
        "050-client-version",
        "052-host_status-unknown-ls",
        "053-renewal-unknown-ls",
        "054-renewal-noarg",
        "055-inq_lockspace-absent",
        "056-rem_lockspace-absent",
        "057-client-init-ls",
        "058-client-init-res",
        "059-client-init-nofile-ls",
        "060-client-init-nofile-res",
        "061-client-init-misaligned",
        "062-client-init-noarg",
    ] {
        a.check(name);
    }
    a.check_but_status("063-client-align");
    for name in [
        "064-client-read-ls",
        "065-client-read-ls-D",
        "066-client-read-res",
        "067-client-read-res-D",
        "068-client-read-nofile",
        "069-client-read-notlease",
        "070-client-read-wrongname",
        "071-acquire-nolockspace",
        "072-add_lockspace-notlease",
        "073-add_lockspace-nofile",
        "074-add_lockspace-hostid0",
    ] {
        a.check(name);
    }
}

/// A lockspace is being joined: io timeout 10 on disk makes that last about 20 s, and a removal
/// ends it.
fn joining(host_a: &Host, a: &Session, dir: &str) {
    let slow = format!("LX:0:{dir}/extra:1048576");
    let _ = host_a.client(&["client", "init", "-s", &slow, "-o", "10"]).success();
    let space = format!("LX:1:{dir}/extra:1048576");
    let mut join = host_a.client_in_background(&["client", "add_lockspace", "-s", &space, "-o", "10"]);
    bounded::wait_until("the lockspace to be listed", SHORT, || {
        !host_a.client(&["client", "gets"]).stdout.is_empty()
    });
    a.check("075-gets-ADD");
    a.check("076-status-ADD");
    a.check("077-inq_lockspace-ADD");
    let removed = host_a.client(&["client", "rem_lockspace", "-s", &space]).success();
    assert_eq!(removed.stdout, "rem_lockspace\nrem_lockspace done 0\n");
    let aborted = join.finish(SHORT);
    assert_eq!((aborted.stdout.as_str(), aborted.code), ("add_lockspace\nadd_lockspace done -201\n", 1));
}

/// Both hosts join LS and see each other.
fn joined(host_a: &Host, host_b: &Host, a: &Session, dir: &str) {
    a.check("078-add_lockspace-timeout");
    a.check("079-inq_lockspace-joined");
    a.check("080-add_lockspace-again");
    a.check("081-add_lockspace-otherid");
    let space_b = format!("LS:2:{dir}/ls:0");
    let _ = host_b.client(&["client", "add_lockspace", "-s", &space_b, "-o", "1"]).success();
    bounded::wait_until("host A to see both hosts", SHORT, || {
        host_a.client(&["client", "gets", "-h", "1"]).stdout.matches(" LIVE\n").count() == 2
    });
    for name in [
        "082-status-joined",
        "083-gets",
        "084-gets-hosts",
        "085-host_status",
        "086-host_status-one",
        "088-renewal",
        "089-direct-read_leader-ls",
        "090-direct-dump-ls",
        "091-status-D-joined",
    ] {
        a.check(name);
    }
}

fn registered(host: &Host, holder: &Holder) {
    bounded::wait_until("the process to be registered", SHORT, || holder.leases(host).is_some());
}

/// R0 is held on host A, R1 shared on both.
fn held(a: &Session, b: &Session) {
    for name in [
        "092-status-locks",
        "093-status-locks-p",
        "094-status-locks-s",
        "096-inquire",
        "097-inquire-D",
        "098-inquire-unknown-pid",
        "099-inquire-nopid",
        "100-client-read-owner-ex",
        "102-direct-read_leader-res-held",
        "103-direct-dump-res",
        "113-busy-local",
    ] {
        a.check(name);
    }
    b.check("108-busy-acquire");
    b.check("109-busy-command");
}

/// Leases taken and given back on behalf of another process, and every refusal on the way.
fn acquiring_for_a_process(host_a: &Host, a: &Session) {
    for name in [
        "114-acquire",
        "115-acquire-again",
        "119-release",
        "120-release-notheld",
        "121-acquire-lver-mismatch",
        "122-acquire-notlease",
        "123-acquire-nofile",
        "124-acquire-wrong-lockspace",
        "125-acquire-unknown-pid",
        "126-acquire-nopid",
        "145-command-output",
    ] {
        a.check(name);
    }
    only_r0_in_use(host_a);
    a.check_but_status("147-command-exec-fails");
    a.check("148-command-norelease-no-resource");
}

/// R2 was used by a command that has just ended; its release runs in the background.
fn only_r0_in_use(host_a: &Host) {
    bounded::wait_until("R2 to be released", SHORT, || {
        host_a.client(&["client", "status"]).stdout.lines().filter(|line| line.starts_with("r ")).count() == 1
    });
}

/// `release -a 1` lets go of everything a process holds.
fn released_everything(host_a: &Host, a: &mut Session, r1: &str, r2: &str) {
    only_r0_in_use(host_a);
    let holder = Holder::start(host_a, &[r1, r2]);
    a.cast(RECORDED_C, holder.pid());
    a.check("156-release-all");
    assert_eq!(holder.leases(host_a), Some(vec![]), "nothing is held after release -a 1");
}
