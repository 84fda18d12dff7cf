//! The program that an administrator wants run when a lockspace fails.

use super::support::{Daemon, Holder, Place, within};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// For a failure that is found at the next renewal, and a kill; on a machine that does other things too.
const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn it_is_told_what_failed_and_delays_nothing_even_if_it_hangs() {
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
    let mut holder = Holder::start(&daemon, &place.leases());
    assert_eq!(holder.says(), "held");
    let disk = File::options().write(true).open(place.leases()).unwrap();
    disk.write_all_at(&[0xff; 512], 0).unwrap();
    disk.sync_all().unwrap();

    assert!(within(LIMIT, || holder.is_gone()), "it is killed while the program hangs");
    let told = || fs::read_to_string(&out).unwrap_or_default();
    assert!(within(LIMIT, || told().ends_with('\n')));
    let told = told();
    let (pid, arguments) = told.trim_end().split_once(' ').unwrap();
    assert_eq!(arguments, format!("LS 1 1 {} 0 corrupt", place.leases().display()));
    kill(Pid::from_raw(pid.parse().unwrap()), Signal::SIGKILL).unwrap();
}
