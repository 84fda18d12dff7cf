//! Carries out what a page tells two hosts to do: a shell for each, which stays from block to block, and `sanlock` in its path.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

/// No block of a page takes longer.
const BLOCK_LIMIT: Duration = Duration::from_secs(120);
/// What a shell prints when a block has ended, with its status.
const END: &str = "==end-of-block";

/// Says that something cannot be done here; with CI set that is a failure.
pub(crate) fn skipped(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "{why}, and CI must not skip");
    eprintln!("skipped: {why}");
}

/// The shell of one host.
struct Shell {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl Shell {
    fn start(dir: &Path, environment: &[(&str, String)]) -> Self {
        let mut child = Command::new("bash")
            .args(["--norc", "--noprofile"])
            .current_dir(dir)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let output = child.stdout.take().unwrap();
        let (to, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if to.send(line).is_err() {
                    break;
                }
            }
        });
        let mut shell = Self { child, stdin, lines };
        // `kill %1` needs job control; the messages about jobs go to stderr.
        shell.stdin.write_all(b"exec 2>&1\nset -m\n").unwrap();
        shell
    }

    /// Runs a block; its status and output. It stops at the first command that fails.
    fn run(&mut self, text: &str) -> (i32, String) {
        // Not in a subshell, so that variables and jobs stay; in a loop, which a failure leaves, since `set -e` would end the shell.
        let stop = "|| { _status=$?; break; }";
        let lines: String = text
            .lines()
            .map(|line| if line.ends_with('&') { format!("{line}\n") } else { format!("{line} {stop}\n") })
            .collect();
        let block = format!("_status=0; while :; do\n{lines}break; done; echo; echo {END} $_status\n");
        self.stdin.write_all(block.as_bytes()).unwrap();
        let (deadline, mut output) = (Instant::now() + BLOCK_LIMIT, String::new());
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left).unwrap_or_else(|e| panic!("{e}: {text}\n{output}"));
            if let Some(status) = line.strip_prefix(END) {
                return (status.trim().parse().unwrap(), output);
            }
            output.push_str(&line);
            output.push('\n');
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = killpg(Pid::from_raw(self.child.id().try_into().unwrap()), Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

/// Two hosts with a scratch directory.
pub(crate) struct Hosts {
    shells: Vec<Shell>,
    devices: Vec<String>,
    dir: tempfile::TempDir,
}

impl Hosts {
    /// Shells in which `sanlock` is the program under test.
    ///
    /// `machines`: the shells stand for machines with a daemon that runs, and joins are made short (an io timeout of 2 s).
    pub(crate) fn start(sanlock: &str, machines: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (work, bin) = (dir.path().join("work"), dir.path().join("bin"));
        fs::create_dir_all(&bin).unwrap();
        fs::create_dir_all(&work).unwrap();
        let short =
            "case \"$1 $2 $3\" in 'client add_lockspace -s'|'direct init -s') set -- \"$@\" -o 2;; esac\n";
        let wrapper = format!("#!/bin/sh\n{}exec '{sanlock}' \"$@\"\n", if machines { short } else { "" });
        // Written by another process: a descriptor that a fork of another test has inherited would keep it from being run.
        let made = Command::new("sh")
            .args(["-c", "printf %s \"$2\" >\"$1\" && chmod 755 \"$1\"", "sh"])
            .args([bin.join("sanlock").into_os_string(), wrapper.into()])
            .status()
            .unwrap();
        assert!(made.success() && bin.join("sanlock").metadata().unwrap().permissions().mode() & 0o111 != 0);
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
        let mut hosts = Self { shells: Vec::new(), devices: Vec::new(), dir };
        for host in ["one", "two"] {
            let mut environment = vec![("PATH", path.clone()), ("HOME", work.display().to_string())];
            if machines {
                environment.push(("SANLOCK_RUN_DIR", work.join(host).display().to_string()));
                environment.push(("SANLOCK_PRIVILEGED", "0".to_owned()));
            }
            hosts.shells.push(Shell::start(&work, &environment));
            if machines {
                let daemon =
                    format!("sanlock daemon -w 0 -l 0 -U \"$(id -un)\" -G \"$(id -gn)\" -e host-{host}");
                hosts.run(if host == "one" { 1 } else { 2 }, &daemon);
            }
        }
        hosts
    }

    /// The directory in which the shells are.
    pub(crate) fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    /// Runs a block on a host (1 or 2); status and output.
    pub(crate) fn run(&mut self, host: usize, text: &str) -> (i32, String) {
        self.shells[host - 1].run(text)
    }

    /// A loop device on a file of 64 MiB; that file where there are none, which with CI set is a failure.
    pub(crate) fn device(&mut self) -> String {
        let file = self.work().join("device");
        fs::File::create(&file).unwrap().set_len(64 << 20).unwrap();
        let output = Command::new("losetup").args(["--find", "--show"]).arg(&file).output();
        match output {
            Ok(output) if output.status.success() => {
                let device = String::from_utf8(output.stdout).unwrap().trim().to_owned();
                self.devices.push(device.clone());
                device
            }
            refused => {
                skipped(&format!("no loop device ({refused:?}), a file in its place"));
                file.display().to_string()
            }
        }
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.shells.clear();
        // Daemons of a page that was not played to its end.
        for host in ["one", "two"] {
            let Ok(text) = fs::read_to_string(self.work().join(host).join("sanlock.pid")) else { continue };
            let pid = text.trim().parse().ok().map(Pid::from_raw);
            let ours = |pid: Pid| {
                let command = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
                String::from_utf8_lossy(&command).contains(&self.work().display().to_string())
            };
            if let Some(pid) = pid.filter(|pid| ours(*pid)) {
                let _ = kill(pid, Signal::SIGKILL);
            }
        }
        for device in &self.devices {
            let _ = Command::new("losetup").args(["--detach", device]).status();
        }
    }
}
