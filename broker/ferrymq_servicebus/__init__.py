"""The personality `azure`: what clients of Azure Service Bus and Event Hubs expect of a broker."""
