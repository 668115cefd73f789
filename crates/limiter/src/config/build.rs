//! From a policy as plain data to a policy.

use std::sync::Arc;
use std::time::Duration;

use http::Method;

use super::lists::apart;
use super::{CostConfig, EntryConfig, KeyConfig, LeaseConfig, PolicyConfig, Registry, refused};
use crate::key::KeyList;
use crate::policy::Cost;
use crate::{Block, ClientAddress, ConfigError, Messages, Networks, Policy};

impl PolicyConfig {
    /// Builds the policy for a limiter that finds its callers' addresses in this way. Addresses in lists become identities in the
    /// same way.
    ///
    /// ```
    /// use tollgate::ClientAddress;
    /// use tollgate::config::{PolicyConfig, Registry};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let policy: PolicyConfig = toml::from_str("name = 'api'\nquotas = '10/s'")?;
    /// let policy = policy.build(&Registry::new(), &ClientAddress::peer())?;
    /// assert_eq!(policy.name(), "api");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// If a field makes no sense, or names something that is not registered.
    pub fn build(
        &self,
        registry: &Registry,
        client: &ClientAddress,
    ) -> Result<Policy, ConfigError> {
        let mut policy = Policy::try_new(&self.name, self.quotas.read(&self.name, "quotas")?)?;
        if let Some(key) = &self.key {
            policy.key = key.build(&self.name, registry)?;
            policy.shape = policy.key.shape();
        }
        policy = self.with_conditions(policy, registry)?;
        policy = self.with_lists(policy, registry, client)?;
        if let Some(tiers) = &self.tiers {
            self.refuse_exempt("tiers", tiers.refused(), &policy, client)?;
            let tiers = tiers.build(&self.name, &self.identities(), registry, client)?;
            policy = policy.try_tiers(tiers)?;
        }
        if let Some(name) = &self.quotas_by {
            policy = policy.quota_by_async(registry.quotas(&self.name, name)?);
        }
        if let Some(classes) = &self.classes {
            policy = classes.build(policy, registry)?;
        }
        policy.cost = match &self.cost {
            CostConfig::Fixed(cost) => Cost::Fixed(*cost),
            CostConfig::Registered(name) => registry.cost(&self.name, name)?,
        };
        if let Some(name) = &self.outcome {
            policy = policy.corrected_by(Some(registry.outcome(&self.name, name)?));
        }
        if let Some(ban) = &self.ban {
            policy = ban.build(policy, registry)?;
        }
        if let Some(once) = &self.once {
            policy = once.build(policy, registry)?;
        }
        policy.lease = self.lease.map(LeaseConfig::build);
        if self.exempt_preflights {
            policy = policy.exempt_preflights();
        }
        if self.exempt_health_checks {
            policy = policy.exempt_health_checks();
        }
        policy.messages = self.per_message.map(Messages::from);
        policy.shadow = self.shadow;
        policy.on_demand = self.on_demand;
        Ok(policy
            .retry_hint(Duration::from_secs(self.retry_hint.into()))
            .on_missing(self.on_missing)
            .on_failure(self.on_failure))
    }

    fn with_conditions(
        &self,
        mut policy: Policy,
        registry: &Registry,
    ) -> Result<Policy, ConfigError> {
        for route in &self.routes {
            policy = policy.try_route(route)?;
        }
        for methods in &self.grpc {
            policy = policy.try_grpc(methods)?;
        }
        for route in &self.exempt_routes {
            policy = policy.try_exempt_route(route)?;
        }
        for method in &self.methods {
            policy = policy.method(self.method("methods", method)?);
        }
        for method in &self.exempt_methods {
            policy = policy.exempt_method(self.method("exempt_methods", method)?);
        }
        for host in &self.hosts {
            policy = policy.try_host(host)?;
        }
        let (networks, registered) = apart(&self.exempt_networks);
        if !networks.is_empty() {
            policy = policy.exempt_networks(self.networks(&networks)?);
        }
        for name in registered {
            policy = policy.exempt_networks(registry.network_list(&self.name, name)?);
        }
        for name in &self.when {
            let condition = Arc::clone(registry.condition(&self.name, name)?);
            policy = policy.when(move |request| condition(request));
        }
        Ok(policy)
    }

    fn with_lists(
        &self,
        mut policy: Policy,
        registry: &Registry,
        client: &ClientAddress,
    ) -> Result<Policy, ConfigError> {
        for list in self.key_lists("exempt_keys", &self.exempt_keys, registry, client)? {
            policy = policy.exempt_keys(list);
        }
        let blocked = [
            (&self.block_keys.forbidden, Block::Forbidden),
            (&self.block_keys.too_many_requests, Block::TooManyRequests),
        ];
        for (entries, how) in blocked {
            self.refuse_exempt("block_keys", apart(entries).0, &policy, client)?;
            for list in self.key_lists("block_keys", entries, registry, client)? {
                policy = policy.block_keys(list, how);
            }
        }
        Ok(policy)
    }

    /// An exemption goes before a refusal, so that a caller under both would pass although the file seems to refuse it.
    fn refuse_exempt<'a>(
        &self,
        field: &'static str,
        entries: impl IntoIterator<Item = &'a str>,
        policy: &Policy,
        client: &ClientAddress,
    ) -> Result<(), ConfigError> {
        let (key, shape) = (self.identities(), policy.shape());
        let identity = |field, text| {
            let written = key.identity(&self.name, field, text, client)?;
            Ok(shape.respelled(&written).unwrap_or(written))
        };
        let exempt = apart(&self.exempt_keys).0.into_iter();
        let exempt: Vec<_> = exempt
            .map(|text| identity("exempt_keys", text))
            .collect::<Result<_, _>>()?;
        let networks = self.networks(&apart(&self.exempt_networks).0)?;
        let is_method_exempt = |text: &str| {
            let is_covered = self.methods.is_empty() || self.methods.iter().any(|it| it == text);
            key.is_method() && (!is_covered || self.exempt_methods.iter().any(|it| it == text))
        };
        for text in entries {
            let reason = if exempt.contains(&identity(field, text)?) {
                "is in exempt_keys too, which lets it pass"
            } else if key.is_client_ip() && text.parse().is_ok_and(|it| networks.contains(it)) {
                "is in exempt_networks too, which let it pass"
            } else if is_method_exempt(text) {
                "is a method that the policy does not cover"
            } else {
                continue;
            };
            return Err(refused(&self.name, field, text, reason));
        }
        Ok(())
    }

    /// The key whose identities stand in lists and tiers.
    fn identities(&self) -> KeyConfig {
        self.key.clone().unwrap_or_default()
    }

    /// The written entries as one list, and the registered lists.
    fn key_lists(
        &self,
        field: &'static str,
        entries: &[EntryConfig],
        registry: &Registry,
        client: &ClientAddress,
    ) -> Result<Vec<KeyList>, ConfigError> {
        let (written, registered) = apart(entries);
        let mut lists = Vec::new();
        if !written.is_empty() {
            let key = self.identities();
            let keys = written
                .into_iter()
                .map(|text| key.identity(&self.name, field, text, client));
            lists.push(keys.collect::<Result<_, _>>()?);
        }
        for name in registered {
            lists.push(registry.key_list(&self.name, field, name)?.clone());
        }
        Ok(lists)
    }

    /// Methods are case-sensitive. No client sends `post`, so a limit on it would never hold.
    fn method(&self, field: &'static str, text: &str) -> Result<Method, ConfigError> {
        if text.bytes().any(|byte| byte.is_ascii_lowercase()) {
            return Err(refused(&self.name, field, text, "is not in upper case"));
        }
        text.parse()
            .map_err(|_| refused(&self.name, field, text, "not a method"))
    }

    fn networks(&self, written: &[&str]) -> Result<Networks, ConfigError> {
        Networks::try_new(written).map_err(|error| match error {
            ConfigError::Network { network, reason } => {
                refused(&self.name, "exempt_networks", &network, reason)
            }
            other => other,
        })
    }
}
