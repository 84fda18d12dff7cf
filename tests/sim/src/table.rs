//! Small maps. What a host has of everything is a handful, looked at with every event: a sorted vector is the fastest map for that,
//! and iterates in the order of its keys like any other run of the same seed.

/// A map from keys to values, kept sorted in one vector.
#[derive(Clone, Debug)]
pub struct Table<K, V>(Vec<(K, V)>);

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Ord + Copy, V> Table<K, V> {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn find(&self, key: K) -> Result<usize, usize> {
        // New keys are mostly the greatest.
        match self.0.last() {
            Some((last, _)) if *last < key => Err(self.0.len()),
            _ => self.0.binary_search_by(|(k, _)| k.cmp(&key)),
        }
    }

    /// What is at this key.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<&V> {
        self.find(*key).ok().map(|at| &self.0[at].1)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.find(*key).ok().map(|at| &mut self.0[at].1)
    }

    /// Whether there is something at this key.
    #[must_use]
    pub fn contains_key(&self, key: &K) -> bool {
        self.find(*key).is_ok()
    }

    /// Puts something at this key, and returns what was there.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.find(key) {
            Ok(at) => Some(std::mem::replace(&mut self.0[at].1, value)),
            Err(at) => {
                self.0.insert(at, (key, value));
                None
            }
        }
    }

    /// What is at this key, put there first if there was nothing.
    pub fn or_insert(&mut self, key: K, value: V) -> &mut V {
        self.or_insert_with(key, || value)
    }

    fn or_insert_with(&mut self, key: K, value: impl FnOnce() -> V) -> &mut V {
        let at = match self.find(key) {
            Ok(at) => at,
            Err(at) => {
                self.0.insert(at, (key, value()));
                at
            }
        };
        &mut self.0[at].1
    }

    /// Takes what is at this key.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.find(*key).ok().map(|at| self.0.remove(at).1)
    }

    /// All, by key.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.0.iter().map(|(k, v)| (k, v))
    }

    /// Those from this key on.
    pub fn from(&self, key: K) -> impl Iterator<Item = (&K, &V)> {
        let at = self.find(key).unwrap_or_else(|at| at);
        self.0[at..].iter().map(|(k, v)| (k, v))
    }

    /// The keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.iter().map(|(k, _)| k)
    }

    /// The values, by key.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, v)| v)
    }

    /// The values, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.0.iter_mut().map(|(_, v)| v)
    }

    /// Every entry in ascending order, its value to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.0.iter_mut().map(|(key, value)| (&*key, value))
    }

    /// Keeps what fulfils a condition.
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &V) -> bool) {
        self.0.retain(|(k, v)| keep(k, v));
    }

    /// Takes everything out.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<K: Ord + Copy, V: Default> Table<K, V> {
    /// What is at this key, the default if there was nothing.
    pub fn or_default(&mut self, key: K) -> &mut V {
        self.or_insert_with(key, V::default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_replaced_and_removed_in_order() {
        let mut table = Table::new();
        for key in [5, 1, 9, 3] {
            assert_eq!(table.insert(key, key * 10), None);
        }
        assert_eq!(table.insert(3, 33), Some(30));
        assert_eq!(
            table.iter().map(|(k, v)| (*k, *v)).collect::<Vec<_>>(),
            [(1, 10), (3, 33), (5, 50), (9, 90)]
        );
        assert_eq!(
            (table.remove(&5), table.remove(&5), table.get(&4), table.get(&9)),
            (Some(50), None, None, Some(&90))
        );
        *table.or_default(4) += 1;
        *table.or_default(4) += 1;
        assert_eq!(table.values().sum::<i32>(), 10 + 33 + 2 + 90);
        table.retain(|k, _| *k > 3);
        assert_eq!((table.len(), table.contains_key(&1)), (2, false));
    }
}
