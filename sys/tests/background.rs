//! Going into the background, in processes of their own: this program starts itself once per case. It has no test harness,
//! because that has threads.

use sanlock_sys::background::{Background, go_into_background};
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Longer than the parent may take, far longer than it needs.
const PATIENCE: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    match std::env::var("BACKGROUND_CASE") {
        Ok(case) => start(&case),
        Err(_) => check_all(),
    }
}

/// What a program does: go into the background, then start or fail as the case says.
fn start(case: &str) -> ExitCode {
    match go_into_background().expect("fork") {
        Background::Parent(result) => {
            println!("{}", result.error);
            ExitCode::from(result.status)
        }
        Background::Child(starting) => {
            match case {
                "starts" => {
                    let report = PathBuf::from(std::env::var_os("BACKGROUND_REPORT").expect("report file"));
                    let files =
                        (0..3).map(|fd| std::fs::read_link(format!("/proc/self/fd/{fd}")).expect("link"));
                    let files: Vec<_> = files.map(|file| file.display().to_string()).collect();
                    let session = nix::unistd::getsid(None).expect("getsid") == nix::unistd::getpid();
                    let directory = std::env::current_dir().expect("directory");
                    let text = format!("{session} {} {}", directory.display(), files.join(" "));
                    std::fs::write(&report, text).expect("write");
                    starting.started();
                    // Runs on after the parent has gone: it writes a second file once the first one is removed.
                    let begin = Instant::now();
                    while report.exists() && begin.elapsed() < PATIENCE {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                    std::fs::write(report.with_extension("end"), "ran on").expect("write");
                }
                "fails" => starting.failed(7, "no such disk"),
                "long" => starting.failed(0, &"x".repeat(100_000)),
                "gives up" => drop(starting),
                "exits" => std::process::exit(9),
                "dies" => std::process::abort(),
                other => panic!("case {other}"),
            }
            ExitCode::SUCCESS
        }
    }
}

/// Runs this program for one case and gives its exit status and output.
fn run(case: &str, report: &std::path::Path) -> (Option<i32>, String) {
    let mut parent = Command::new(std::env::current_exe().expect("own path"))
        .env("BACKGROUND_CASE", case)
        .env("BACKGROUND_REPORT", report)
        .stdout(Stdio::piped())
        .spawn()
        .expect("spawn");
    let mut output = String::new();
    // Ends only when the background process has let go of the pipe too.
    parent.stdout.take().expect("stdout").read_to_string(&mut output).expect("read");
    (parent.wait().expect("wait").code(), output.trim_end().to_owned())
}

fn check_all() -> ExitCode {
    let dir = tempfile::tempdir().expect("directory");
    let report = dir.path().join("report");

    assert_eq!(run("starts", &report), (Some(0), String::new()));
    let text = std::fs::read_to_string(&report).expect("report");
    assert_eq!(text, "true / /dev/null /dev/null /dev/null");
    std::fs::remove_file(&report).expect("remove");
    let begin = Instant::now();
    while !report.with_extension("end").exists() {
        assert!(begin.elapsed() < PATIENCE, "the background process did not run on");
        std::thread::sleep(Duration::from_millis(10));
    }

    assert_eq!(run("fails", &report), (Some(7), "no such disk".to_owned()));
    assert_eq!(run("long", &report), (Some(1), "x".repeat(4096)));
    assert_eq!(run("gives up", &report), (Some(1), "the start was given up".to_owned()));
    let during = "during its start";
    assert_eq!(
        run("exits", &report),
        (Some(9), format!("the background process ended with status 9 {during}"))
    );
    assert_eq!(run("dies", &report), (Some(1), format!("the background process killed by SIGABRT {during}")));
    println!("going into the background: all cases passed");
    ExitCode::SUCCESS
}
