//! Networks that change at run time.

use std::net::IpAddr;
use std::sync::Arc;

use super::Networks;
use crate::sync::ArcSwap;

/// [`Networks`] that can be replaced while they are in use: clones are one list.
///
/// ```
/// use tollgate::{NetworkList, Networks, Policy, Quota};
///
/// let offices = NetworkList::from(Networks::new(["192.0.2.0/24"]));
/// let policy = Policy::new("api", Quota::per_second(10)).exempt_networks(&offices);
///
/// // Later, from anywhere.
/// offices.replace(Networks::new(["192.0.2.0/24", "198.51.100.0/24"]));
/// ```
#[derive(Clone, Debug, Default)]
pub struct NetworkList(Arc<ArcSwap<Networks>>);

impl NetworkList {
    /// Replaces all networks by these.
    pub fn replace(&self, networks: Networks) {
        self.0.store(Arc::new(networks));
    }

    /// True if the address is in one of them now.
    ///
    /// ```
    /// use tollgate::{NetworkList, Networks};
    ///
    /// let offices = NetworkList::from(Networks::new(["192.0.2.0/24"]));
    /// assert!(offices.contains("192.0.2.7".parse().unwrap()));
    /// ```
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.load().contains(address)
    }
}

impl From<Networks> for NetworkList {
    fn from(networks: Networks) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(networks)))
    }
}

impl From<&Self> for NetworkList {
    fn from(list: &Self) -> Self {
        list.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_can_be_replaced_while_it_is_in_use() {
        let list = NetworkList::from(Networks::new(["192.0.2.0/24"]));
        let other = list.clone();
        let address = "198.51.100.1".parse().unwrap();
        assert!(!list.contains(address));

        other.replace(Networks::new(["198.51.100.0/24"]));

        assert!(list.contains(address));
    }
}
