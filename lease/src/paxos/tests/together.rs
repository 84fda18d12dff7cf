//! Several live hosts at once, interleaved operation by operation: never an exclusive holder beside any other (property S1).

use super::*;
use crate::machine::{Action, Env, Input, Machine, NoHosts, NoSectors, Step};
use crate::paxos::convert::{ConvertOutcome, PaxosConvert};
use crate::paxos::share::PaxosShare;
use crate::testing::TestDisk;

enum Task {
    Exclusive(Box<PaxosAcquire>),
    Share(Box<PaxosShare>),
    Convert(Box<PaxosConvert>),
    Release(Box<PaxosRelease>),
}

enum Outcome {
    Acquire(AcquireOutcome),
    Convert(ConvertOutcome),
    Release(ReleaseOutcome),
}

impl Task {
    fn step(&mut self, now: MonoTime, input: Input<'_>) -> Step<Outcome> {
        let env = Env {
            lockspace: LockspaceNow::Alive { generation: 1 },
            client_alive: true,
            shutting_down: false,
            hosts: &NoHosts,
        };
        match self {
            Self::Exclusive(m) => m.step(now, &env, input).map(Outcome::Acquire),
            Self::Share(m) => m.step(now, &env, input).map(Outcome::Acquire),
            Self::Convert(m) => m.step(now, &env, input).map(Outcome::Convert),
            Self::Release(m) => m.step(now, &env, input).map(Outcome::Release),
        }
    }
}

#[derive(Default)]
struct Node {
    task: Option<Task>,
    flying: Vec<Op>,
    wait: bool,
    /// What its process believes to hold.
    held: Option<Held>,
    /// Something failed: a retract is due.
    retract: bool,
}

struct Reached {
    exclusive: u32,
    together: u32,
    up: u32,
    down: u32,
    refused: u32,
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        crate::paxos::random(&mut self.0) % n
    }
}

fn begin(node: &mut Node, id: u64, random: &mut Random) {
    let options =
        AcquireOptions { owner_nowait: true, seed: random.below(u64::MAX), ..AcquireOptions::default() };
    node.task = Some(match node.held {
        _ if node.retract => Task::Release(Box::new(PaxosRelease::retract(config(id), Geometry::B512_M1))),
        None if random.below(3) == 0 => Task::Exclusive(Box::new(PaxosAcquire::new(config(id), options))),
        None => Task::Share(Box::new(PaxosShare::new(config(id), options, 8))),
        Some(_) if random.below(2) == 0 => {
            // From the moment it begins to let go, the process has lost its token.
            let held = node.held.take().unwrap();
            Task::Release(Box::new(PaxosRelease::new(config(id), held)))
        }
        Some(held) if held.is_shared() => {
            Task::Convert(Box::new(PaxosConvert::to_exclusive(config(id), options, held)))
        }
        Some(held) => Task::Convert(Box::new(PaxosConvert::to_shared(config(id), held))),
    });
}

fn act(node: &mut Node, step: Step<Outcome>, reached: &mut Reached) {
    match step {
        Step::Io(ops) => {
            node.wait = false;
            node.flying.extend(ops);
        }
        Step::Wait(_) => node.wait = true,
        Step::Pending => {}
        Step::Done { outcome, .. } => {
            node.task = None;
            node.wait = false;
            match outcome {
                Outcome::Acquire(AcquireOutcome::Acquired(held)) => {
                    reached.exclusive += u32::from(!held.is_shared());
                    node.held = Some(held);
                }
                Outcome::Acquire(AcquireOutcome::Failed { retract, .. }) => {
                    reached.refused += 1;
                    node.retract = retract.is_some();
                }
                Outcome::Convert(ConvertOutcome { result, held, erase, .. }) => {
                    assert!(!erase, "nothing fails here");
                    node.held = Some(held);
                    match (result, held.is_shared()) {
                        (Ok(()), true) => reached.down += 1,
                        (Ok(()), false) => reached.up += 1,
                        (Err(_), shared) => {
                            reached.refused += 1;
                            assert!(shared);
                        }
                    }
                }
                Outcome::Release(outcome) => {
                    outcome.result.unwrap();
                    node.retract = false;
                }
            }
        }
    }
}

fn run(seed: u64, steps: u32, reached: &mut Reached) {
    let mut random = Random(seed);
    let mut disk: TestDisk = free_lab().disk;
    let mut nodes: [Node; 3] = Default::default();
    let mut now = MonoTime::from_secs(1000);
    for _ in 0..steps {
        now = now.plus_millis(random.below(20));
        let at = usize::try_from(random.below(3)).unwrap();
        let (id, node) = (at as u64 + 1, &mut nodes[at]);
        let step = match &mut node.task {
            None => {
                begin(node, id, &mut random);
                node.task.as_mut().unwrap().step(now, Input::Start)
            }
            Some(task) if node.flying.is_empty() => {
                assert!(node.wait, "seed {seed}: waits for nothing");
                task.step(now, Input::Tick)
            }
            Some(task) => {
                let pick = usize::try_from(random.below(node.flying.len() as u64)).unwrap();
                let op = node.flying.remove(pick);
                match op.action {
                    Action::Write { sector, content } => {
                        let mut bytes = [0; 512];
                        content.encode(&mut bytes);
                        disk.write(op.place, B512, sector, &bytes);
                        task.step(now, Input::Completed { op: op.id, result: Ok(&NoSectors) })
                    }
                    Action::Read { first, count } => {
                        let view = disk.view(op.place, B512, first, count).unwrap();
                        task.step(now, Input::Completed { op: op.id, result: Ok(&view) })
                    }
                }
            }
        };
        act(node, step, reached);
        let exclusive = nodes.iter().filter(|n| n.held.is_some_and(|h| !h.is_shared())).count();
        let holders = nodes.iter().filter(|n| n.held.is_some()).count();
        assert!(exclusive == 0 || holders == 1, "seed {seed}: {exclusive} exclusive among {holders}");
        reached.together += u32::from(holders > 1);
    }
}

#[test]
fn nobody_is_exclusive_beside_anybody_else() {
    let mut reached = Reached { exclusive: 0, together: 0, up: 0, down: 0, refused: 0 };
    for seed in 0..400 {
        run(seed, 2000, &mut reached);
    }
    let Reached { exclusive, together, up, down, refused } = reached;
    for (what, times) in
        [("exclusive", exclusive), ("together", together), ("up", up), ("down", down), ("refused", refused)]
    {
        assert!(times > 100, "{what}: {times}");
    }
}
