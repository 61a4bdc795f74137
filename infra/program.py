"""The platform as one plain function: reads the settings, composes the components, names the outputs.

`pulumi up` runs it through `__main__`, and the Automation API as an inline program.
"""

import pulumi

from gpu_platform.domain.tenants import DEFAULT_TENANT, tenant_namespace
from infra.cluster import check_service_monitors, declare_cluster, read_cluster
from infra.components.access import Account, ProcessAccess, ProcessAccessArgs, ProgramRoles, ProgramRolesArgs
from infra.components.admission import MetadataPolicy, MetadataPolicyArgs
from infra.components.api_keys import ApiKeys, ApiKeysArgs
from infra.components.catalogue import Catalogue, CatalogueArgs, StockPools, StockPoolsArgs
from infra.components.definitions import CustomResourceDefinitions, DefinitionsArgs, PriorityClasses
from infra.components.gpu_operator import NvidiaGpuOperator, NvidiaGpuOperatorArgs
from infra.components.namespaces import PlatformNamespaces, PlatformNamespacesArgs
from infra.components.nats import NatsServers, NatsServersArgs
from infra.components.tenant_limits import TenantLimitMap, TenantLimitMapArgs
from infra.components.workloads import API, RECONCILER, STACK_WORKER, PlatformWorkloads, PlatformWorkloadsArgs
from infra.settings import PlatformSettings, is_secret, read_settings
from platform_api.rbac import RULES as API_RULES
from providers.cluster.rbac import RULES as PROVIDER_RULES
from reconciler.rbac import rules_of
from stacks.worker.rbac import RULES as STACK_WORKER_RULES

PROJECT = "gpu-platform"
"""The configuration's namespace, whoever runs the program under whichever project."""


def platform() -> None:
    config = pulumi.Config(PROJECT)
    settings = read_settings(config)
    cluster = read_cluster()
    if settings.workloads.enabled and settings.workloads.service_monitors.enabled:
        check_service_monitors(cluster, f"{PROJECT}:workloads.serviceMonitors.enabled")
    owner_stack = f"{pulumi.get_project()}/{pulumi.get_stack()}"
    # Every component has it, and its objects inherit it.
    opts = pulumi.ResourceOptions(providers=[declare_cluster(cluster)])

    definitions = CustomResourceDefinitions("definitions", DefinitionsArgs(settings.protect), opts)
    priorities = PriorityClasses("priorities", opts)
    namespace_args = PlatformNamespacesArgs(
        settings.namespaces, settings.tenants, settings.tenant_limits, settings.protect
    )
    namespaces = PlatformNamespaces("namespaces", namespace_args, opts)
    declared: list[pulumi.Resource] = [definitions, priorities, namespaces]
    access = _declare_access(settings, namespaces, opts)
    program_roles = ProgramRoles("program-roles", ProgramRolesArgs(PROVIDER_RULES, after=[namespaces]), opts)
    policy_args = MetadataPolicyArgs(after=[definitions, program_roles, *access])
    declared += [*access, program_roles, MetadataPolicy("metadata-policy", policy_args, opts)]
    if settings.api_keys:
        declared.append(ApiKeys("api-keys", ApiKeysArgs(settings.api_keys, after=[namespaces]), opts))
    limits = {DEFAULT_TENANT: settings.namespaces.instance.limits}
    limits |= {tenant: namespace.limits for tenant, namespace in settings.tenants.items()}
    declared.append(
        TenantLimitMap("tenant-limits", TenantLimitMapArgs(settings.tenant_limits, limits, after=[namespaces]), opts)
    )
    workloads = nats = operator = None
    if settings.workloads.enabled:
        args = PlatformWorkloadsArgs(settings.workloads, settings.nats, after=tuple(declared))
        workloads = PlatformWorkloads("workloads", args, opts)
    if settings.nats.enabled:
        dns = settings.workloads.reconciler.settings.dns_pods
        nats = NatsServers("nats", NatsServersArgs(settings.nats, dns, after=[namespaces]), opts)
    catalogue = Catalogue("catalogue", CatalogueArgs(settings.gpu_specs, owner_stack, after=[definitions]), opts)
    stock_args = StockPoolsArgs(settings.stock_pools, owner_stack, after=[definitions, namespaces, catalogue])
    stock = StockPools("stock", stock_args, opts)
    declared += [each for each in (workloads, nats, catalogue, stock) if each]
    if settings.gpu_operator.enabled:
        operator_args = NvidiaGpuOperatorArgs(
            settings.gpu_operator, values_are_secret=is_secret(config, "gpuOperator"), after=tuple(declared)
        )
        operator = NvidiaGpuOperator("gpu-operator", operator_args, opts)

    pulumi.export("environment", settings.environment)
    instance = namespaces.tenants[DEFAULT_TENANT]
    pulumi.export("namespaces", {"system": namespaces.system, "stock": namespaces.stock, "instance": instance})
    pulumi.export("tenants", namespaces.tenants)
    pulumi.export("gpuSpecs", catalogue.gpu_specs)
    pulumi.export("stockPools", stock.replicas)
    pulumi.export("apiURL", workloads.api_url if workloads else None)
    pulumi.export("natsURL", nats.url if nats else settings.nats.url)
    pulumi.export("gpuOperatorVersion", operator.version if operator else None)


def _declare_access(
    settings: PlatformSettings, namespaces: PlatformNamespaces, opts: pulumi.ResourceOptions
) -> list[ProcessAccess]:
    """Also where the processes do not run in the cluster: they may have come by these rights from outside."""
    controllers = settings.workloads.reconciler.settings.controllers
    tenant_namespaces = tuple(map(tenant_namespace, namespaces.tenants))
    accounts = (
        Account(API, API_RULES),
        Account(RECONCILER, rules_of(controllers)),
        Account(STACK_WORKER, STACK_WORKER_RULES),
    )
    return [
        ProcessAccess(account.name, ProcessAccessArgs(account, tenant_namespaces, after=[namespaces]), opts)
        for account in accounts
    ]
