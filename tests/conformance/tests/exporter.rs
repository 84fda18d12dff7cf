//! `sanlock exporter` beside a daemon of each program, asked over HTTP, by promtool and by a real Prometheus. Our command only.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use sanlock_conformance::frozen::FreezableDir;
use sanlock_conformance::host::pid_of;
use sanlock_conformance::program::missing;
use sanlock_conformance::{Holder, Host, Lockspace, Program, Running, Scene, Storage, bounded};
use serde_json::Value;

/// For what happens soon, on a machine that does other things too.
const SOON: Duration = Duration::from_secs(60);

/// An exporter that listens on a port of its own.
struct Exporter {
    running: Running,
    address: String,
}

impl Exporter {
    fn start(host: &Host, options: &[&str]) -> Self {
        let mut command = bounded::dying_with_us(&Program::Ours.path());
        command.args(["exporter", "--listen", "127.0.0.1:0"]).args(options);
        command.env("SANLOCK_RUN_DIR", host.run_dir());
        let running = Running::start(command);
        let address = bounded::poll_for("the exporter to listen", SOON, || {
            let (_, stderr) = running.text();
            let (_, rest) = stderr.split_once("serving http://")?;
            Some(rest.split_once("/metrics\n")?.0.to_owned())
        });
        Self { running, address }
    }

    fn send(&self, request: &str) -> String {
        send(&self.address, request)
    }

    fn text(&self) -> String {
        let answer = self.send("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        body.to_owned()
    }

    fn samples(&self) -> Samples {
        Samples::of(&self.text())
    }

    /// The samples once they are as wanted.
    fn until(&self, what: &str, wanted: impl Fn(&Samples) -> bool) -> Samples {
        bounded::poll_for(what, SOON, || {
            std::thread::sleep(Duration::from_millis(200));
            Some(self.samples()).filter(&wanted)
        })
    }
}

fn send(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    // Refused before all of it was sent: the answer counts.
    let _ = stream.write_all(request.as_bytes());
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

/// Values by series, as written.
#[derive(Debug)]
struct Samples(BTreeMap<String, f64>);

impl Samples {
    fn of(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let mut all = BTreeMap::new();
        for line in lines {
            let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line:?}"));
            let before = all.insert(series.to_owned(), value.parse().unwrap());
            assert_eq!(before, None, "{series} is there twice");
        }
        Self(all)
    }

    fn get(&self, series: &str) -> Option<f64> {
        self.0.get(series).copied()
    }

    fn value(&self, series: &str) -> f64 {
        self.get(series).unwrap_or_else(|| panic!("no {series} in {self:?}"))
    }

    fn is(&self, series: &str, value: f64) -> bool {
        self.get(series).is_some_and(|found| (found - value).abs() < 1e-9)
    }

    fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> =
            self.0.keys().map(|series| series.split('{').next().unwrap_or_default()).collect();
        names.dedup();
        names
    }
}

fn monitoring(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/monitoring").join(file)
}

fn has_prometheus() -> bool {
    Path::new("/usr/bin/promtool").exists() || missing("prometheus")
}

fn promtool(args: &[&str], input: &str) -> (bool, String) {
    let mut child = Command::new("promtool")
        .args(args)
        .current_dir(monitoring(""))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

fn no_complaint(args: &[&str], input: &str) {
    let (success, text) = promtool(args, input);
    assert!(success, "promtool {args:?}: {text}");
}

fn programs() -> impl Iterator<Item = Program> {
    [Program::Ours, Program::Reference].into_iter().filter(|program| program.available())
}

/// It is no host that lives, and none that is dead.
#[test]
fn a_host_whose_record_is_damaged_is_counted() {
    let scene = Scene::asked_by(Storage::file(), Program::Ours, Program::Ours, 2, 1);
    scene.wait_until_all_see_all();
    let exporter = Exporter::start(scene.host(0), &[]);
    let (live, damaged) =
        ("sanlock_hosts{lockspace=\"LS\",state=\"live\"}", "sanlock_hosts_damaged{lockspace=\"LS\"}");
    let before = exporter.samples();
    assert!(before.is(live, 2.0) && before.is(damaged, 0.0));
    let file = std::fs::File::options().write(true).open(scene.storage().path()).unwrap();
    let after = exporter.until("the damage to be counted", |now| {
        // A renewal that was under way may have put it back.
        file.write_all_at(&[0; 512], 512).unwrap();
        file.sync_all().unwrap();
        now.is(damaged, 1.0)
    });
    assert!(after.is(live, 1.0));
}

/// The disk of a host goes away from it: what the others do meanwhile it does not know, whatever GET_HOSTS says of their silence.
#[test]
fn hosts_that_could_not_be_looked_at_have_not_failed() {
    for program in programs() {
        let mut scene = Scene::asked_by(Storage::file(), program, Program::Ours, 2, 1);
        scene.wait_until_all_see_all();
        let exporter = Exporter::start(scene.host(0), &[]);
        let state = |state| format!("sanlock_hosts{{lockspace=\"LS\",state=\"{state}\"}}");
        scene.host_mut(1).kill();
        // It is silent for 6 of the 8 s after which a host counts as failed, then this one is blind, and has 6 s itself.
        std::thread::sleep(Duration::from_secs(6));
        let host = scene.host(0);
        let file = std::fs::File::options().write(true).open(scene.storage().path()).unwrap();
        file.set_len(0).unwrap();
        let silent = bounded::poll_for("the silent host to count as failed", SOON, || {
            let (_, hosts) = host.connect().get_hosts("LS", 2);
            hosts.first().map(|host| host.flags & 0xf).filter(|state| *state != 3)
        });
        assert_eq!(silent, 4, "{program:?}");
        let seen = exporter.samples();
        assert!(seen.is(&state("unknown"), 1.0) && seen.is(&state("fail"), 0.0), "{program:?} {seen:?}");
        let shown = host.client(&["top", "--once"]).success().stdout;
        assert!(shown.contains("UNKNOWN") && !shown.contains("FAIL "), "{program:?} {shown}");
        if program == Program::Ours {
            // Its own renewals fail, which is counted, and stays so while the lockspace is there.
            let errors = "sanlock_renewal_errors_total{lockspace=\"LS\"}";
            let _ = exporter
                .until("failed renewals to be counted", |now| now.get(errors).is_some_and(|n| n >= 1.0));
        }
    }
}

#[test]
fn a_daemon_under_load_moves_its_metrics_and_promtool_has_nothing_to_say() {
    for program in programs() {
        let scene = Scene::asked_by(Storage::file(), program, Program::Ours, 2, 3);
        scene.wait_until_all_see_all();
        let (host, storage) = (scene.host(0), scene.storage());
        let exporter = Exporter::start(host, &[]);
        let before = exporter.samples();
        assert!(
            before.is("sanlock_up", 1.0) && before.is("sanlock_hosts{lockspace=\"LS\",state=\"live\"}", 2.0)
        );

        let shared = format!("{}:SH", storage.resource_arg(2));
        let holder = Holder::start(host, &[&storage.resource_arg(1), &shared]);
        let mut client = host.connect();
        client.register();
        for _ in 0..5 {
            assert_eq!(client.acquire_one(&storage.resource(3)), 0);
            assert_eq!(client.release_one(&storage.resource(3)), 0);
        }
        let mut other = scene.host(1).connect();
        other.register();
        assert_eq!(other.acquire_one(&storage.resource(3)), 0);
        assert_eq!(client.acquire_one(&storage.resource(3)), -243);

        let reads = "sanlock_renewal_duration_seconds_count{lockspace=\"LS\",io=\"read\"}";
        let held = |mode| format!("sanlock_leases{{lockspace=\"LS\",state=\"held\",mode=\"{mode}\"}}");
        let after = exporter.until("renewals to be counted", |now| {
            now.value(reads) > before.value(reads) && now.is(&held("exclusive"), 1.0)
        });
        assert!(
            after.is(&held("shared"), 1.0) && after.is("sanlock_scrape_errors_total{step=\"hosts\"}", 0.0)
        );
        let buckets = "sanlock_renewal_duration_seconds_bucket{lockspace=\"LS\",io=\"read\",le=\"+Inf\"}";
        assert!(after.is(buckets, after.value(reads)));
        assert!(after.value("sanlock_lockspace_fail_seconds_left{lockspace=\"LS\"}") <= 8.0);
        let acquires =
            |outcome| format!("sanlock_requests_total{{command=\"acquire\",outcome=\"{outcome}\"}}");
        match program {
            Program::Ours => {
                assert!(after.value(&acquires("done")) >= 6.0 && after.is(&acquires("contended"), 1.0));
                let took = "sanlock_request_duration_seconds_count{command=\"acquire\",result=\"failed\"}";
                assert!(after.is(took, 1.0));
                let watch = "sanlock_lockspace_watchdog_state{lockspace=\"LS\",state=\"off\"}";
                assert!(
                    after.is(watch, 1.0) && after.value("sanlock_queue_depth{queue=\"connections\"}") >= 2.0
                );
            }
            // It counts nothing; what it does not say is left out.
            Program::Reference => assert_eq!(after.get(&acquires("done")), None),
        }
        if has_prometheus() {
            no_complaint(&["check", "metrics"], &exporter.text());
        }
        drop((holder, client, other));
    }
}

#[test]
fn a_daemon_that_stands_still_or_is_away_is_down_and_up_again() {
    if !Program::Ours.available() {
        return;
    }
    let mut host = Host::start(Program::Ours, "host1");
    let mut exporter = Exporter::start(&host, &["--timeout", "1"]);
    let down = |now: &Samples| now.is("sanlock_up", 0.0);
    let up = |now: &Samples| now.is("sanlock_up", 1.0);
    assert!(up(&exporter.samples()));
    kill(pid_of(host.pid()), Signal::SIGSTOP).unwrap();
    let stopped = exporter.until("a daemon that stands still to be down", down);
    assert_eq!(stopped.get("sanlock_connections{registered=\"no\"}"), None, "nothing old is shown");
    kill(pid_of(host.pid()), Signal::SIGCONT).unwrap();
    let _ = exporter.until("it to be up again", up);
    host.kill();
    let away = exporter.until("a daemon that is away to be down", down);
    assert!(away.value("sanlock_scrape_errors_total{step=\"status\"}") >= 2.0);
    host.restart();
    let _ = exporter.until("the next daemon to be up", up);
    assert!(!exporter.running.ended());
    let (_, said) = exporter.running.text();
    let times = said.matches("the daemon cannot be asked at").count();
    assert_eq!(times, 2, "each outage is said once: {said}");
}

#[test]
fn a_hung_lockspace_delays_no_scrape_and_its_budget_is_seen_to_shrink() {
    let Some(program) = Program::ours_under_test("may stand still with its disk") else { return };
    let Some(mut place) = FreezableDir::new() else { return };
    let storage = Storage::file();
    let host = Host::start(program, "host1");
    host.init(&storage, 1);
    host.join(&storage, 1);
    let path = place.path().join("hung").to_str().unwrap().to_owned();
    std::fs::File::create(&path).and_then(|file| file.set_len(2 << 20)).unwrap();
    let _ = host.client(&["direct", "init", "-s", &format!("HUNG:0:{path}:0"), "-o", "1"]).success();
    assert_eq!(host.connect().add_lockspace(&Lockspace::new("HUNG", 1, &path, 0), 0, 1), 0);
    let exporter = Exporter::start(&host, &[]);
    place.freeze();
    let budget = |ls| format!("sanlock_lockspace_renewal_budget_ratio{{lockspace=\"{ls}\"}}");
    let late = exporter.until("the hung lockspace to have used half of its budget", |now| {
        assert!(now.is("sanlock_up", 1.0) && now.value("sanlock_scrape_duration_seconds") < 5.0);
        now.get(&budget("HUNG")).is_some_and(|used| used >= 0.5)
    });
    for step in ["status", "hosts", "renewal"] {
        assert!(late.is(&format!("sanlock_scrape_errors_total{{step=\"{step}\"}}"), 0.0), "{step}");
    }
    // Nobody uses it, so it is being left as soon as it has failed; what was written does not end.
    let failed = exporter
        .until("it to have failed", |now| now.is("sanlock_lockspace_healthy{lockspace=\"HUNG\"}", 0.0));
    assert!(failed.is("sanlock_lockspace_healthy{lockspace=\"LS\"}", 1.0));
    assert!(failed.value(&budget("HUNG")) >= 1.0, "{failed:?}");
    place.thaw();
}

#[test]
fn bad_input_is_refused_and_scrapers_are_served_all_the_same() {
    if !Program::Ours.available() {
        return;
    }
    let host = Host::start(Program::Ours, "host1");
    let exporter = Exporter::start(&host, &[]);
    for (request, status) in [
        ("\r\n\r\n", 400),
        ("GET /metrics HTTP/1.1\r\n\r\n", 400),
        ("GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nnonsense!", 400),
        ("POST /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        ("GET /../etc/passwd HTTP/1.0\r\n\r\n", 404),
        ("GET /metrics HTTP/3.0\r\n\r\n", 505),
        (&format!("GET /{} HTTP/1.0\r\n\r\n", "a".repeat(100_000)), 431),
    ] {
        let answer = exporter.send(request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{:.60}: {answer}", request);
        assert!(exporter.samples().is("sanlock_up", 1.0));
    }
    let open = exporter.send(
        "GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: application/openmetrics-text; version=1.0.0\r\n\r\n",
    );
    assert!(open.contains("application/openmetrics-text") && open.ends_with("\n# EOF\n"));
    let second = Running::start({
        let mut command = bounded::dying_with_us(&Program::Ours.path());
        command.args(["exporter", "--listen", &exporter.address]);
        command
    })
    .finish(SOON);
    assert_eq!(second.code, 1, "{second}");
    assert!(second.stderr.contains("cannot listen on") && second.stderr.contains("--listen"), "{second}");
}

#[test]
fn the_text_file_has_the_metrics_and_once_prints_them() {
    if !Program::Ours.available() {
        return;
    }
    let host = Host::start(Program::Ours, "host1");
    let path = host.run_dir().join("sanlock.prom");
    let mut command = bounded::dying_with_us(&Program::Ours.path());
    command.args(["exporter", "--interval", "1", "--textfile"]).arg(&path);
    let _running = Running::start({
        command.env("SANLOCK_RUN_DIR", host.run_dir());
        command
    });
    let read = || std::fs::read_to_string(&path).ok();
    let first = bounded::poll_for("the file to be written", SOON, read);
    assert!(Samples::of(&first).is("sanlock_up", 1.0));
    let _ = bounded::poll_for("it to be written again", SOON, || read().filter(|text| *text != first));
    let mut once = Command::new(Program::Ours.path());
    once.args(["exporter", "--once"]).env("SANLOCK_RUN_DIR", host.run_dir());
    assert!(Samples::of(&bounded::run(once, SOON).success().stdout).is("sanlock_up", 1.0));
    let mut once = Command::new(Program::Ours.path());
    once.args(["exporter", "--once"]).env("SANLOCK_RUN_DIR", "/nonexistent");
    let away = bounded::run(once, SOON);
    assert_eq!(away.code, 1, "{away}");
    assert!(Samples::of(&away.stdout).is("sanlock_up", 0.0));
}

#[test]
fn the_alert_rules_are_valid_and_fire_when_they_must() {
    if !has_prometheus() {
        return;
    }
    no_complaint(&["check", "rules", "sanlock-alerts.yml"], "");
    no_complaint(&["test", "rules", "sanlock-alerts-test.yml"], "");
}

/// Every query of the dashboard, with its variables as Grafana would fill them in.
fn queries() -> Vec<String> {
    let text = std::fs::read_to_string(monitoring("sanlock-dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    targets
        .map(|target| {
            let query = target["expr"].as_str().unwrap();
            let query = query.replace("$instance", ".*").replace("$lockspace", ".*");
            query.replace("$__rate_interval", "30s")
        })
        .collect()
}

/// Names of metrics of ours in a text.
fn mentioned(text: &str) -> Vec<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("sanlock_")).collect()
}

#[test]
fn the_dashboard_the_alerts_and_the_guide_name_metrics_that_exist() {
    if !Program::Ours.available() {
        return;
    }
    let scene = Scene::one_host(Program::Ours, 1);
    scene.wait_until_all_see_all();
    let exporter = Exporter::start(scene.host(0), &[]);
    let samples = exporter.samples();
    let names = samples.names();
    let (mut used, alerts) = (0, std::fs::read_to_string(monitoring("sanlock-alerts.yml")).unwrap());
    for text in queries().iter().chain([&alerts]) {
        for name in mentioned(text) {
            assert!(names.contains(&name), "{name} is no metric: {text:.200}");
            used += 1;
        }
    }
    assert!(used > 30, "{used}");
    // And the guide lists each, by the name of its family.
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/monitoring.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let listed = mentioned(&guide);
    let page = exporter.text();
    let families: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .filter_map(|rest| rest.split(' ').next())
        .collect();
    for family in &families {
        assert!(listed.contains(family), "{family} is not in docs/guide/monitoring.md");
    }
    for name in listed {
        let known = families.contains(&name) || names.contains(&name);
        assert!(known, "{name} of docs/guide/monitoring.md is no metric");
    }
}

/// A port that nobody listens on; somebody else could take it before the program does that is told of it.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn query(address: &str, path: &str) -> Value {
    let answer = send(address, &format!("GET {path} HTTP/1.0\r\n\r\n"));
    let body = answer.split_once("\r\n\r\n").unwrap_or_default().1;
    serde_json::from_str(body).unwrap_or(Value::Null)
}

fn encoded(text: &str) -> String {
    text.bytes()
        .map(
            |byte| {
                if byte.is_ascii_alphanumeric() {
                    char::from(byte).to_string()
                } else {
                    format!("%{byte:02X}")
                }
            },
        )
        .collect()
}

#[test]
fn a_real_prometheus_has_data_for_every_query_of_the_dashboard() {
    if !Program::Ours.available() || !has_prometheus() {
        return;
    }
    let scene = Scene::two_hosts(Program::Ours, 2);
    scene.wait_until_all_see_all();
    let exporter = Exporter::start(scene.host(0), &[]);
    let dir = tempfile::tempdir().unwrap();
    let config = format!(
        "global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}\n\
         rule_files: [{}]\n\
         scrape_configs: [{{job_name: sanlock, static_configs: [{{targets: ['{}']}}]}}]\n",
        monitoring("sanlock-alerts.yml").canonicalize().unwrap().display(),
        exporter.address
    );
    std::fs::write(dir.path().join("prometheus.yml"), config).unwrap();
    let address = format!("127.0.0.1:{}", free_port());
    let mut command = bounded::dying_with_us(Path::new("/usr/bin/prometheus"));
    command.arg(format!("--config.file={}/prometheus.yml", dir.path().display()));
    command.arg(format!("--storage.tsdb.path={}/data", dir.path().display()));
    command.arg(format!("--web.listen-address={address}"));
    let mut prometheus = Running::start(command);
    bounded::wait_until("Prometheus to answer", SOON, || {
        assert!(!prometheus.ended(), "{:?}", prometheus.text());
        TcpStream::connect(&address).is_ok()
    });
    let _holder = Holder::start(scene.host(0), &[&scene.storage().resource_arg(1)]);
    for text in queries() {
        let path = format!("/api/v1/query?query={}", encoded(&text));
        bounded::wait_until(&format!("data for {text}"), SOON, || {
            let answer = query(&address, &path);
            assert_ne!(answer["status"], "error", "{answer}");
            answer["data"]["result"].as_array().is_some_and(|series| !series.is_empty())
        });
    }
    // The rules have an interval of their own: until it has passed once their health is "unknown".
    let rules = bounded::poll_for("Prometheus to judge every rule", SOON, || {
        let answer = query(&address, "/api/v1/rules");
        let rules = answer["data"]["groups"][0]["rules"].as_array().unwrap().clone();
        rules.iter().all(|rule| rule["health"] != "unknown").then_some(rules)
    });
    assert!(rules.len() > 10);
    for rule in rules {
        assert_eq!(rule["health"], "ok", "{rule}");
    }
}
