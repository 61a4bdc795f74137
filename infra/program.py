"""The platform as one plain function: reads the settings, composes the components, names the outputs.

`pulumi up` runs it through `__main__`, and the Automation API as an inline program.
"""

import pulumi

from gpu_platform.domain.tenants import DEFAULT_TENANT, tenant_namespace
from infra.cluster import check_service_monitors, declare_cluster, read_cluster
from infra.components.access import Account, ProcessAccess, ProcessAccessArgs, ProgramRoles, ProgramRolesArgs
from infra.components.admission import MetadataPolicy
from infra.components.api_configuration import ApiKeys, ApiKeysArgs, TenantLimitMap, TenantLimitMapArgs
from infra.components.catalogue import Catalogue, CatalogueArgs, StockPools, StockPoolsArgs
from infra.components.definitions import CustomResourceDefinitions, DefinitionsArgs, PriorityClasses
from infra.components.gpu_operator import NvidiaGpuOperator, NvidiaGpuOperatorArgs
from infra.components.namespaces import PlatformNamespaces, PlatformNamespacesArgs
from infra.components.nats import NatsServers, NatsServersArgs
from infra.components.processes import API, RECONCILER, STACK_WORKER
from infra.components.workloads import PlatformWorkloads, PlatformWorkloadsArgs
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
    provider = declare_cluster(cluster)

    def after(*resources: pulumi.Resource | None) -> pulumi.ResourceOptions:
        """Options of a component: the provider, which its objects inherit, and what it waits for."""
        return pulumi.ResourceOptions(providers=[provider], depends_on=[each for each in resources if each])

    definitions = CustomResourceDefinitions("definitions", DefinitionsArgs(settings.protect), after())
    priorities = PriorityClasses("priorities", after())
    namespace_args = PlatformNamespacesArgs(
        settings.namespaces, settings.tenants, settings.tenant_limits, settings.protect
    )
    namespaces = PlatformNamespaces("namespaces", namespace_args, after())
    access = [ProcessAccess(args.account.name, args, after(namespaces)) for args in _list_access(settings, namespaces)]
    program_roles = ProgramRoles("program-roles", ProgramRolesArgs(PROVIDER_RULES), after(namespaces))
    policy = MetadataPolicy("metadata-policy", after(definitions, program_roles, *access))
    declared: list[pulumi.Resource] = [definitions, priorities, namespaces, *access, program_roles, policy]
    if settings.api_keys:
        declared.append(ApiKeys("api-keys", ApiKeysArgs(settings.api_keys), after(namespaces)))
    limits = {DEFAULT_TENANT: settings.namespaces.instance.limits}
    limits |= {tenant: namespace.limits for tenant, namespace in settings.tenants.items()}
    limits_args = TenantLimitMapArgs(settings.tenant_limits, limits)
    declared.append(TenantLimitMap("tenant-limits", limits_args, after(namespaces)))
    workloads = nats = operator = None
    if settings.workloads.enabled:
        args = PlatformWorkloadsArgs(settings.workloads, settings.nats)
        workloads = PlatformWorkloads("workloads", args, after(*declared))
    if settings.nats.enabled:
        dns = settings.workloads.reconciler.settings.dns_pods
        nats = NatsServers("nats", NatsServersArgs(settings.nats, dns), after(namespaces))
    catalogue = Catalogue("catalogue", CatalogueArgs(settings.gpu_specs, owner_stack), after(definitions))
    stock_args = StockPoolsArgs(settings.stock_pools, owner_stack)
    stock = StockPools("stock", stock_args, after(definitions, namespaces, catalogue))
    if settings.gpu_operator.enabled:
        operator_args = NvidiaGpuOperatorArgs(settings.gpu_operator, values_are_secret=is_secret(config, "gpuOperator"))
        everything = after(*declared, workloads, nats, catalogue, stock)
        operator = NvidiaGpuOperator("gpu-operator", operator_args, everything)

    pulumi.export("environment", settings.environment)
    instance = namespaces.tenants[DEFAULT_TENANT]
    pulumi.export("namespaces", {"system": namespaces.system, "stock": namespaces.stock, "instance": instance})
    pulumi.export("tenants", namespaces.tenants)
    pulumi.export("gpuSpecs", catalogue.gpu_specs)
    pulumi.export("stockPools", stock.replicas)
    pulumi.export("apiURL", workloads.api_url if workloads else None)
    pulumi.export("natsURL", nats.url if nats else settings.nats.url)
    pulumi.export("gpuOperatorVersion", operator.version if operator else None)


def _list_access(settings: PlatformSettings, namespaces: PlatformNamespaces) -> list[ProcessAccessArgs]:
    """Also where the processes do not run in the cluster: they may have these rights from outside."""
    tenant_namespaces = tuple(map(tenant_namespace, namespaces.tenants))
    accounts = (
        Account(API, API_RULES),
        Account(RECONCILER, rules_of(settings.workloads.reconciler.settings.controllers)),
        Account(STACK_WORKER, STACK_WORKER_RULES),
    )
    return [ProcessAccessArgs(account, tenant_namespaces) for account in accounts]
