"""What an API server makes of the kinds of PodGroups that it doesn't have: their watches must end without harm."""

import pytest

from arranger.kube.cluster import NATIVE_GROUPS, ApiError, Resource
from tests.contract.test_cluster_contract import Subject, subject  # noqa: F401 - a fixture

pytestmark = pytest.mark.timeout(120)


#: No test installs its definition on the API server that tests share, as some do with those of PodGroups.
_NOBODYS = Resource("nobody.example", "v1", "podgroups", "PodGroup")


@pytest.mark.parametrize("kind", [_NOBODYS, *NATIVE_GROUPS], ids=lambda of: of.api_version)
async def test_a_kind_that_isnt_served_is_not_found(subject: Subject, kind: Resource) -> None:  # noqa: F811
    async with subject.open() as place:
        with pytest.raises(ApiError) as refused:
            async for _ in place.cluster.listing(kind):
                pass
        assert refused.value.code == 404
