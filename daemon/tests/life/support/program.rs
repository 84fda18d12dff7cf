//! Two programs for tests: a daemon, and a process that holds a lease.
//!
//! * `test-daemon serve RUN_DIR HOST_NAME` runs a daemon in the foreground, unprivileged; settings in RUN_DIR.conf are its own.
//! * `test-daemon hold RUN_DIR PATH OFFSET NAME` acquires the resource `NAME` of the lockspace `LS` there, says `held` and waits to be
//!   killed. It says `lost` when the daemon closes the connection.

use sanlock_client::Client;
use sanlock_daemon::config::Config;
use sanlock_wire::Name;
use sanlock_wire::flags::AcquireFlags;
use sanlock_wire::types::{Disk, Resource, ResourceSpec};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let text = |at: usize| words.get(at).map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    match (text(0).as_str(), words.len()) {
        ("serve", 3) => serve(PathBuf::from(text(1)), &text(2)),
        ("hold", 5) => match hold(&text(1), &text(2), &text(3), &text(4)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                println!("{error}");
                ExitCode::FAILURE
            }
        },
        _ => {
            eprintln!("usage: test-daemon serve RUN_DIR HOST_NAME | hold RUN_DIR PATH OFFSET NAME");
            ExitCode::FAILURE
        }
    }
}

fn serve(run_dir: PathBuf, host_name: &str) -> ExitCode {
    let mut config = Config::default();
    let settings = format!(
        "our_host_name = {host_name}\nuse_watchdog = 0\nmlock_level = 0\nlogfile_priority = -1\nsyslog_priority = -1\n\
         write_init_io_timeout = 2\n"
    );
    config.apply_file(settings.as_bytes());
    // More settings, from a file beside the run directory.
    if let Ok(more) = std::fs::read(run_dir.with_extension("conf")) {
        config.apply_file(&more);
    }
    config.foreground = true;
    config.privileged = false;
    config.run_dir = run_dir;
    config.uname = Some(nix::unistd::geteuid().to_string());
    config.gname = Some(nix::unistd::getegid().to_string());
    ExitCode::from(sanlock_daemon::run(config))
}

fn hold(run_dir: &str, path: &str, offset: &str, name: &str) -> Result<(), Box<dyn std::error::Error>> {
    let mut process = Client::with_run_dir(run_dir).register()?;
    let resource = Resource::new(Name::truncated("LS"), Name::truncated(name));
    let spec = ResourceSpec::new(resource, vec![Disk::new(path, offset.parse()?)?])?;
    process.acquire(AcquireFlags::empty(), &[spec], None)?;
    println!("held");
    let fd = process.into_fd();
    let mut poll = [nix::poll::PollFd::new(std::os::fd::AsFd::as_fd(&fd), nix::poll::PollFlags::POLLIN)];
    nix::poll::poll(&mut poll, nix::poll::PollTimeout::NONE)?;
    println!("lost");
    Ok(())
}
