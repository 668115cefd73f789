//! The options of methods and services, read.

use prost_reflect::{DescriptorPool, DynamicMessage, ExtensionDescriptor, MethodDescriptor, Value};
use tollgate_core::{Ban, Quota};
use tollgate_limiter::key::Header;
use tollgate_limiter::transport::is_none;
use tollgate_limiter::{Messages, Policy, Quotas};

use super::{OptionFault, ProtoError};

/// The options that there are in a contract.
pub(super) struct Options {
    service: Option<ExtensionDescriptor>,
    method: Option<ExtensionDescriptor>,
    messages: Option<ExtensionDescriptor>,
}

impl Options {
    pub(super) fn of(pool: &DescriptorPool) -> Self {
        let extension = |name| pool.get_extension_by_name(name);
        Self {
            service: extension("tollgate.v1.service_limit"),
            method: extension("tollgate.v1.limit"),
            messages: extension("tollgate.v1.message_limit"),
        }
    }

    /// The policies of a service, without those of its methods.
    pub(super) fn of_service(
        &self,
        name: &str,
        options: &DynamicMessage,
    ) -> Result<Vec<Policy>, ProtoError> {
        let place = Place {
            name,
            methods: &format!("{name}/*"),
        };
        read(self.service.as_ref(), options, |limit| place.calls(limit))
            .map_err(|wrong| place.error(wrong))
    }

    /// The policies of a method: of its calls, and of their messages.
    pub(super) fn of_method(&self, method: &MethodDescriptor) -> Result<Vec<Policy>, ProtoError> {
        let name = called(method);
        let place = Place {
            name: &name,
            methods: &name,
        };
        let options = method.options();
        let calls = read(self.method.as_ref(), &options, |limit| place.calls(limit));
        let messages = read(self.messages.as_ref(), &options, |limit| {
            place.messages(limit)
        });
        let both = calls.and_then(|mut calls| {
            calls.extend(messages?);
            Ok(calls)
        });
        both.map_err(|wrong| place.error(wrong))
    }
}

/// The method as a call names it: `shop.v1.Orders/Place`.
pub(super) fn called(method: &MethodDescriptor) -> String {
    format!("{}/{}", method.parent_service().full_name(), method.name())
}

/// The results for each occurrence of an option.
fn read(
    extension: Option<&ExtensionDescriptor>,
    options: &DynamicMessage,
    policy: impl Fn(&DynamicMessage) -> Result<Policy, OptionFault>,
) -> Result<Vec<Policy>, OptionFault> {
    let Some(extension) = extension.filter(|extension| options.has_extension(extension)) else {
        return Ok(Vec::new());
    };
    let value = options.get_extension(extension);
    let limits = value
        .as_list()
        .unwrap_or_else(|| std::slice::from_ref(&value));
    let limits = limits
        .iter()
        .map(|limit| limit.as_message().ok_or(OptionFault::Shape));
    limits.map(|limit| policy(limit?)).collect()
}

/// The place of an option.
struct Place<'a> {
    name: &'a str,
    /// The subject of the option.
    methods: &'a str,
}

impl Place<'_> {
    fn calls(&self, option: &DynamicMessage) -> Result<Policy, OptionFault> {
        let mut policy = self.policy(option, "")?;
        if let Some(ban) = ban(text(option, "ban")?)? {
            policy = policy.ban(ban);
        }
        if let Some(id) = id(text(option, "once_by")?)? {
            policy = policy.once_by(id);
        }
        Ok(policy)
    }

    fn messages(&self, option: &DynamicMessage) -> Result<Policy, OptionFault> {
        let policy = self.policy(option, "/messages")?;
        Ok(policy.per_message(messages(option)?))
    }

    fn policy(&self, option: &DynamicMessage, suffix: &str) -> Result<Policy, OptionFault> {
        let limit = Limit::of(option)?;
        let place = || format!("{}{suffix}", self.name.to_ascii_lowercase());
        let name = limit.name.unwrap_or_else(place);
        let policy = Policy::try_new(&name, limit.quotas)?.try_grpc(self.methods)?;
        Ok(policy.cost(limit.cost))
    }

    fn error(&self, wrong: OptionFault) -> ProtoError {
        ProtoError::Option {
            place: self.name.into(),
            wrong,
        }
    }
}

/// The fields that every option has.
struct Limit {
    quotas: Quotas,
    cost: u64,
    name: Option<String>,
}

impl Limit {
    fn of(option: &DynamicMessage) -> Result<Self, OptionFault> {
        // Written for a newer version of this crate, which would understand it.
        if option.unknown_fields().next().is_some() {
            return Err(OptionFault::Unknown);
        }
        let quotas = quotas(text(option, "quota")?, number(option, "burst")?)?;
        let cost = if option.has_field_by_name("cost") {
            number(option, "cost")?
        } else {
            1
        };
        let name = Some(text(option, "name")?).filter(|name| !name.is_empty());
        Ok(Self { quotas, cost, name })
    }
}

/// The quotas of a text, as for [`Policy::try_new`], which reports errors in it. A burst needs a single quota.
fn quotas(text: String, burst: u64) -> Result<Quotas, OptionFault> {
    let quotas = match burst {
        0 => return Ok(text.into()),
        _ => Quota::parse_all(&text),
    };
    match quotas.as_deref() {
        Ok([quota]) => Ok(quota.try_burst(burst)?.into()),
        Ok(_) => Err(OptionFault::BurstOfSeveral { quota: text }),
        Err(_) if is_none(&text) => Err(OptionFault::BurstOfSeveral { quota: text }),
        Err(_) => Ok(text.into()),
    }
}

fn ban(text: String) -> Result<Option<Ban>, OptionFault> {
    if text.is_empty() {
        return Ok(None);
    }
    let ban = text.parse();
    ban.map(Some)
        .map_err(|error| OptionFault::Ban { ban: text, error })
}

fn id(metadata: String) -> Result<Option<Header>, OptionFault> {
    if metadata.is_empty() {
        return Ok(None);
    }
    let id = Header::try_new(&metadata);
    id.map(Some).map_err(|_| OptionFault::OnceBy { metadata })
}

/// The further fields of the option for messages.
fn messages(option: &DynamicMessage) -> Result<Messages, OptionFault> {
    let mut messages = match option.get_field_by_name("of").as_deref() {
        Some(Value::EnumNumber(1)) => Messages::received(),
        Some(Value::EnumNumber(2)) => Messages::sent(),
        Some(Value::EnumNumber(3)) => Messages::both(),
        Some(Value::EnumNumber(_)) => return Err(OptionFault::Direction),
        _ => return Err(OptionFault::Shape),
    };
    if flag(option, "by_bytes")? {
        messages = messages.by_bytes();
    }
    if flag(option, "end_stream")? {
        messages = messages.end_stream();
    }
    Ok(messages)
}

fn text(option: &DynamicMessage, name: &str) -> Result<String, OptionFault> {
    match option.get_field_by_name(name).as_deref() {
        Some(Value::String(text)) => Ok(text.clone()),
        _ => Err(OptionFault::Shape),
    }
}

fn number(option: &DynamicMessage, name: &str) -> Result<u64, OptionFault> {
    match option.get_field_by_name(name).as_deref() {
        Some(Value::U64(number)) => Ok(*number),
        _ => Err(OptionFault::Shape),
    }
}

fn flag(option: &DynamicMessage, name: &str) -> Result<bool, OptionFault> {
    match option.get_field_by_name(name).as_deref() {
        Some(Value::Bool(flag)) => Ok(*flag),
        _ => Err(OptionFault::Shape),
    }
}
