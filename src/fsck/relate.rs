//! What only several areas together show: leases whose lockspace is elsewhere, the disks of one resource, two leases of one name.

use super::scan::{Body, Otherwise, Scan};
use sanlock_lease::fsck::{Finding, Problem, ResourceReport, Spot, check_against, check_disks, is_behind};
use sanlock_lease::name::Name;
use sanlock_lease::rindex::LEASE_NAME;
use std::collections::BTreeMap;

impl Scan {
    /// What only several areas together show.
    pub(super) fn relate(&mut self) {
        let mut found: Vec<(usize, Finding)> = Vec::new();
        let mut without: Vec<Name> = Vec::new();
        let mut copies: BTreeMap<(Name, Name), Vec<usize>> = BTreeMap::new();
        for (number, area) in self.areas.iter().enumerate() {
            let Body::Resource(report) = &area.body else { continue };
            let Some(known) = report.known.filter(|_| !report.cleared) else { continue };
            match self.lockspace(known.lockspace) {
                Some((_, lockspace)) => {
                    found.extend(check_against(report, lockspace).into_iter().map(|f| (number, f)));
                }
                None if without.contains(&known.lockspace) => {}
                None => without.push(known.lockspace),
            }
            if known.name.as_bytes() != LEASE_NAME {
                copies.entry((known.lockspace, known.name)).or_default().push(number);
            }
        }
        for numbers in copies.values().filter(|numbers| numbers.len() > 1) {
            found.extend(self.compare(numbers));
            self.excuse(&self.disks(numbers));
        }
        for name in without {
            let of = |place: &&Otherwise| {
                let mut there = self.areas.iter().filter(|area| place.has(area));
                there.any(|area| matches!(&area.body, Body::Resource(r) if r.known.is_some_and(|k| k.lockspace == name)))
            };
            for Otherwise { at, blank, .. } in self.begin_otherwise.iter().filter(of) {
                // Of leases on a volume of their own the beginning may never have been used.
                self.nothing |= !blank;
                self.remarks.push(format!(
                    "{at}: no lockspace begins there, and lockspace {name:?} of the leases behind it was not found: if it was there, it is lost, and nobody can join it"
                ));
            }
            self.remarks.push(format!(
                "lockspace {name:?} is none of the places given, so its leases were not compared with it; --lockspace PATH:OFFSET names it"
            ));
        }
        for (number, finding) in found {
            if let Some(area) = self.areas.get_mut(number) {
                area.findings.push(finding);
            }
        }
    }

    /// What a leader's disk has of later versions is no damage where another disk of the resource has the leader that goes with it.
    fn excuse(&mut self, disks: &[usize]) {
        let leaders = disks.iter().filter_map(|n| self.areas.get(*n)).filter_map(|area| match &area.body {
            Body::Resource(report) => report.known.map(|known| known.lver),
            _ => None,
        });
        let newest = leaders.max().unwrap_or(0);
        for number in disks {
            let Some(area) = self.areas.get_mut(*number) else { continue };
            let excused = matches!(&area.body, Body::Resource(report) if is_behind(report, newest));
            area.findings.retain(|f| !(excused && f.problem == Problem::BallotAhead));
        }
    }

    /// Of leases of one name, the first one in each place: the disks of one resource.
    fn disks(&self, numbers: &[usize]) -> Vec<usize> {
        let place = |n: &usize| self.areas.get(*n).map(|area| area.place);
        let first = |n: &usize| numbers.iter().find(|other| place(other) == place(n)) == Some(n);
        numbers.iter().copied().filter(first).collect()
    }

    /// Leases of one name: the disks of one resource, or two leases that pass for one.
    fn compare(&self, numbers: &[usize]) -> Vec<(usize, Finding)> {
        let mut found = Vec::new();
        let disks = self.disks(numbers);
        for number in numbers.iter().filter(|number| !disks.contains(number)) {
            let place = self.areas.get(*number).map(|area| area.place);
            let first = disks.iter().filter_map(|n| self.areas.get(*n)).find(|a| Some(a.place) == place);
            let finding = Finding {
                problem: Problem::ResourceTwice,
                spot: Spot { sector: 0, at: 0 },
                what: "the leader record".to_owned(),
                found: format!("the name of the lease at offset {}", first.map_or(0, |a| a.offset)),
                expected: "a name of its own".to_owned(),
                fix: None,
            };
            found.push((*number, finding));
        }
        let reports: Vec<&ResourceReport> = disks
            .iter()
            .filter_map(|n| match &self.areas.get(*n)?.body {
                Body::Resource(report) => Some(report.as_ref()),
                _ => None,
            })
            .collect();
        found.extend(check_disks(&reports).into_iter().filter_map(|(n, f)| Some((*disks.get(n)?, f))));
        found
    }
}
