//! Whether a watchdog stands behind the daemon: by its settings, and by the options that it runs with, or will be started with next time,
//! which come before them.

use super::root::Root;
use sanlock_daemon::config::Config;

/// What the unit gives the daemon, as `sanlock_opts="…"`.
const DEFAULTS: &str = "/etc/default/sanlock";

/// Where it says that the daemon does without a watchdog. `config` is what the settings say.
pub(super) fn without_watchdog(root: &Root, config: &Config) -> Vec<String> {
    let mut found = Vec::new();
    let by_settings = config.use_watchdog == 0;
    let running = running(root);
    let next = defaults(root).and_then(|text| watchdog(text.split_whitespace()));
    if let Some((pid, args)) = &running {
        if watchdog(args.iter().map(String::as_str)) == Some(false) {
            found.push(format!("the daemon (process {pid}) was started with -w 0"));
        }
    }
    if next == Some(false) {
        found.push(format!("sanlock_opts in {DEFAULTS} has -w 0"));
    }
    if by_settings && next != Some(true) {
        found.push("sanlock.conf says use_watchdog = 0".to_owned());
    }
    found
}

/// The process that the daemon's pid file names, if there is one; with `/proc/PID/status` if it is the daemon. The file stays when a daemon
/// ends, and its number may be another process's by now.
pub(super) fn daemon(root: &Root) -> Option<(String, Option<String>)> {
    let pid = root.text("/run/sanlock/sanlock.pid")?.trim().to_owned();
    let status = root.text(&format!("/proc/{pid}/status"));
    let is_daemon = |status: &String| {
        status.lines().any(|line| line.strip_prefix("Name:").is_some_and(|name| name.trim() == "sanlock"))
    };
    Some((pid, status.filter(is_daemon)))
}

/// The process of the daemon, and what it was started with.
fn running(root: &Root) -> Option<(String, Vec<String>)> {
    let (pid, _) = daemon(root).filter(|(_, status)| status.is_some())?;
    let line = root.text(&format!("/proc/{pid}/cmdline"))?;
    Some((pid, line.split('\0').map(str::to_owned).collect()))
}

/// The last value counts, as in a shell.
fn defaults(root: &Root) -> Option<String> {
    let text = root.text(DEFAULTS)?;
    let value =
        text.lines().filter_map(|line| line.trim_start().strip_prefix("sanlock_opts=")).next_back()?;
    Some(value.trim().trim_matches(['"', '\'']).to_owned())
}

/// What the last `-w` among these options says.
fn watchdog<'a>(mut options: impl Iterator<Item = &'a str>) -> Option<bool> {
    let mut said = None;
    while let Some(option) = options.next() {
        let value = match option.strip_prefix("-w") {
            Some("") => options.next(),
            other => other,
        };
        said = value.and_then(|value| value.parse::<u32>().ok()).map(|value| value != 0).or(said);
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_w_counts() {
        for (options, says) in [
            ("", None),
            ("daemon -e node1 -g 20", None),
            ("daemon -w 0", Some(false)),
            ("-w0 -e n", Some(false)),
            ("-w 0 -U sanlock -w 1", Some(true)),
            ("-e n -w", None),
            ("-w 0 -w x", Some(false)),
        ] {
            assert_eq!(watchdog(options.split_whitespace()), says, "{options}");
        }
    }
}
