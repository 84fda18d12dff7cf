//! The program that an administrator wants run when a lockspace fails.

use super::support::{Daemon, Holder, Place, within};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

/// For a failure that is found at the next renewal, and a kill; on a machine that does other things too.
const LIMIT: Duration = Duration::from_secs(60);

/// A daemon with a lockspace, a program for its failure that hangs, and a process that holds a lease.
struct Told {
    daemon: Daemon,
    holder: Holder,
    out: PathBuf,
    place: Place,
}

impl Told {
    fn new() -> Self {
        let place = Place::new();
        let (script, out) = (place.dir.path().join("on_fail"), place.dir.path().join("out"));
        let text = format!(
            "#!/bin/sh\necho \"$$ $*${{NOTIFY_SOCKET+ as the daemon}}\" >{}\nexec sleep 1000\n",
            out.display()
        );
        sanlock_executable::script(&script, &text, 0o755);
        let settings = format!("on_fail = /nonexistent\non_fail:LS = {}\n", script.display());
        fs::write(place.run_dir("a").with_extension("conf"), settings).unwrap();

        let daemon = Daemon::start(&place.run_dir("a"), "host1");
        place.format(&daemon);
        place.join(&daemon, 1);
        // Of the two the one that cannot be run.
        let log = || String::from_utf8_lossy(&daemon.client().log_dump().unwrap()).into_owned();
        assert!(
            within(LIMIT, || log().contains("on_fail = /nonexistent: the program cannot be run")),
            "{}",
            log()
        );
        assert!(!log().contains("on_fail:LS ="), "{}", log());
        let mut holder = Holder::start(&daemon, &place.leases());
        assert_eq!(holder.says(), "held");
        Self { daemon, holder, out, place }
    }

    /// Damages the host's record, until the daemon has seen it: a renewal that has read before writes over it.
    fn the_holder_is_killed(&mut self) {
        let disk = File::options().write(true).open(self.place.leases()).unwrap();
        let killed = within(LIMIT, || {
            disk.write_all_at(&[0xff; 512], 0).unwrap();
            disk.sync_all().unwrap();
            self.holder.is_gone()
        });
        assert!(killed, "it is killed, whatever the program does");
    }

    /// The program has been started, with the arguments it is promised.
    fn was_told(&self) {
        let told = || fs::read_to_string(&self.out).unwrap_or_default();
        assert!(within(LIMIT, || told().ends_with('\n')), "it is told");
        let told = told();
        let (pid, arguments) = told.trim_end().split_once(' ').unwrap();
        assert_eq!(arguments, format!("LS 1 1 {} 0 corrupt", self.place.leases().display()));
        kill(Pid::from_raw(pid.parse().unwrap()), Signal::SIGKILL).unwrap();
    }
}

#[test]
fn it_is_told_what_failed_and_delays_nothing_even_if_it_hangs() {
    let mut failing = Told::new();
    failing.the_holder_is_killed();
    failing.was_told();
}

#[test]
fn it_is_told_although_the_lockspace_has_ended_before_it_could_be_started() {
    let mut failing = Told::new();
    let helper = failing.daemon.helper_pid();
    kill(helper, Signal::SIGSTOP).unwrap();
    failing.the_holder_is_killed();
    assert!(within(LIMIT, || failing.daemon.client().get_lockspaces().unwrap().is_empty()));
    // It may have been replaced already.
    let _ = kill(helper, Signal::SIGCONT);
    failing.was_told();
}
