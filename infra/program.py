"""The platform as one plain function: reads the settings, composes the components, names the outputs.

`pulumi up` runs it through `__main__`, and the Automation API as an inline program.
"""

import pulumi

from gpu_platform.domain import names
from infra.components.access import ProcessAccess, ProcessAccessArgs
from infra.components.catalogue import Catalogue, CatalogueArgs, StockPools, StockPoolsArgs
from infra.components.definitions import CustomResourceDefinitions, DefinitionsArgs, PriorityClasses
from infra.components.gpu_operator import NvidiaGpuOperator, NvidiaGpuOperatorArgs
from infra.components.keys import ApiKeys, ApiKeysArgs
from infra.components.namespaces import PlatformNamespaces, PlatformNamespacesArgs
from infra.components.nats import NatsServers, NatsServersArgs
from infra.components.workloads import PlatformWorkloads, PlatformWorkloadsArgs
from infra.objects.nats import nats_url
from infra.objects.roles import Account
from infra.objects.workloads import API, RECONCILER, STACK_WORKER, api_url
from infra.settings import PlatformSettings, is_secret, read_settings
from platform_api.rules import RULES as API_RULES
from reconciler.rules import rules_of
from stacks.worker.rules import RULES as STACK_WORKER_RULES

PROJECT = "gpu-platform"
"""The configuration's namespace, whoever runs the program under whichever project."""


def platform() -> None:
    config = pulumi.Config(PROJECT)
    settings = read_settings(config)
    owner_stack = f"{pulumi.get_project()}/{pulumi.get_stack()}"

    definitions = CustomResourceDefinitions("definitions", DefinitionsArgs(settings.protect))
    priorities = PriorityClasses("priorities")
    namespaces = PlatformNamespaces(
        "namespaces", PlatformNamespacesArgs(settings.namespaces, settings.tenants, settings.protect)
    )
    ground: list[pulumi.Resource] = [definitions, priorities, namespaces]
    ground += _declare_access(settings, namespaces)
    if settings.api_keys:
        ground.append(ApiKeys("api-keys", ApiKeysArgs(settings.api_keys, after=[namespaces])))
    if settings.gpu_operator.enabled:
        values_are_secret = is_secret(config, "gpuOperator")
        NvidiaGpuOperator("gpu-operator", NvidiaGpuOperatorArgs(settings.gpu_operator, values_are_secret))
    if settings.nats.enabled:
        NatsServers("nats", NatsServersArgs(settings.nats, after=[namespaces]))
    if settings.workloads.enabled:
        PlatformWorkloads("workloads", PlatformWorkloadsArgs(settings.workloads, settings.nats, after=ground))
    catalogue = Catalogue("catalogue", CatalogueArgs(settings.gpu_specs, owner_stack, after=[definitions]))
    StockPools(
        "stock",
        StockPoolsArgs(settings.stock_pools, owner_stack, after=[definitions, namespaces, catalogue]),
    )
    _export(settings, namespaces)


def _declare_access(settings: PlatformSettings, namespaces: PlatformNamespaces) -> list[ProcessAccess]:
    """Also where the processes do not run in the cluster: they may have come by these rights from outside."""
    controllers = settings.workloads.reconciler.settings.controllers
    tenant_namespaces = tuple(namespaces.tenant_namespaces.values())
    accounts = (
        Account(API, API_RULES),
        Account(RECONCILER, rules_of(controllers)),
        Account(STACK_WORKER, STACK_WORKER_RULES),
    )
    return [
        ProcessAccess(account.name, ProcessAccessArgs(account, tenant_namespaces, after=[namespaces]))
        for account in accounts
    ]


def _export(settings: PlatformSettings, namespaces: PlatformNamespaces) -> None:
    pulumi.export("environment", settings.environment)
    pulumi.export(
        "namespaces",
        {
            "system": names.SYSTEM_NAMESPACE,
            "stock": names.STOCK_NAMESPACE,
            "instance": names.DEFAULT_INSTANCE_NAMESPACE,
        },
    )
    pulumi.export("tenants", namespaces.tenant_namespaces)
    pulumi.export("gpuSpecs", sorted(settings.gpu_specs))
    pulumi.export("stockPools", {name: pool.replicas for name, pool in sorted(settings.stock_pools.items())})
    pulumi.export("apiURL", api_url() if settings.workloads.enabled else None)
    pulumi.export("natsURL", nats_url() if settings.nats.enabled else settings.nats.url)
    pulumi.export("gpuOperatorVersion", settings.gpu_operator.version if settings.gpu_operator.enabled else None)
