//! A daemon for tests: in the foreground, unprivileged, in the run directory and under the host name given.

use sanlock_daemon::config::Config;
use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let (Some(run_dir), Some(host_name)) = (words.next(), words.next()) else {
        eprintln!("usage: daemon RUN_DIR HOST_NAME");
        return ExitCode::FAILURE;
    };
    let mut config = Config::default();
    let setting = format!(
        "our_host_name = {}\nuse_watchdog = 0\nmlock_level = 0\nlogfile_priority = -1\nsyslog_priority = -1\nuname = root\n\
         gname = root\n",
        host_name.to_string_lossy()
    );
    config.apply_file(setting.as_bytes());
    config.foreground = true;
    config.privileged = false;
    config.run_dir = PathBuf::from(run_dir);
    ExitCode::from(sanlock_daemon::run(config))
}
