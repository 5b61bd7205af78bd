"""The objects that pods need before they start: Services, members files, and claims with volumes and devices. Its face
is `pod_needs`."""
